"""The commands of `murmuration init`."""
