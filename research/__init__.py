"""Reproductions of the papers, benchmarks and stress tests: in a checkout, and not installed."""
