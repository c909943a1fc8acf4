"""Kinds of files whose rows are not one a line."""
