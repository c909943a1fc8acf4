"""Win rates: comparisons of answers by a judge, with intervals, and their pages."""
