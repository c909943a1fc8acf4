"""Terminal output: its escaping, and its style."""
