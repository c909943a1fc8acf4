"""Whose answers win: comparisons before a judge, their intervals, and what is shown of them."""
