"""A transformer that is trained: its settings, and its network."""
