"""Reproductions on bandits: policies from labels that are protected or corrupted."""
