"""The settings of a run, without what uses them."""
