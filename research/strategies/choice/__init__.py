"""A private choice of one of several policies that are there already."""
