"""How fast it is, as ratios within one run on the machine at hand."""
