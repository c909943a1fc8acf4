"""Simulations: synthetic populations with known truth, experiments, benchmarks and the command
line. It may import every other package; none imports it."""
