"""Commands that work in a checkout: benchmarks and reproductions."""
