"""The steps that the server takes: its optimizers, and how far a step goes."""
