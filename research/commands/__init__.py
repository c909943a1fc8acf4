"""Commands that work in a checkout: benchmarks, bounds and reproductions."""
