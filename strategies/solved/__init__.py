"""Strategies that solve for the model from one or two noisy sums of labels, on public items."""
