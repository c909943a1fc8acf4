"""Reruns of the papers' figures and tables, and experiments of our own."""
