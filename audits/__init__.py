"""Attempts to refute what is claimed."""
