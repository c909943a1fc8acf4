"""Runs beside the user's data: the ClientApp and the store of users a node hosts."""
