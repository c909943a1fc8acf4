"""Sums under masks: the server learns the sum over the nodes, not the nodes' sums."""
