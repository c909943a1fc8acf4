"""Choosing one of several private releases by a private score, and paying for the choice."""
