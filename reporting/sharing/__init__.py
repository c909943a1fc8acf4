"""Sharing a model: a folder without paths, and its upload."""
