"""Runs and deployments under attack and accident."""
