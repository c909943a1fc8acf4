"""Judgements and texts: what they must hold, and how they are loaded."""
