"""What leaves this machine when a model is shared: a folder without paths, and its upload."""
