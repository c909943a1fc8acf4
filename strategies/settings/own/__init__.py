"""Settings of each strategy: one file a strategy, and those that several share."""
