"""Choosing settings privately: candidates run a random number of times, the best one released."""
