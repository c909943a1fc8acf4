"""Strategies of papers that runs of a checkout can have, and an installation has not."""
