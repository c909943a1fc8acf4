"""Feature maps φ: from a prompt and a response to a vector."""
