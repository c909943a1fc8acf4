"""Planning: the cost of a run, and the choice of strategy and sizes."""
