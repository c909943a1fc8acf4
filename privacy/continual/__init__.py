"""Sums that are released again and again while people add to them, under one promise."""
