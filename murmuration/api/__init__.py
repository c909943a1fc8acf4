"""The Python API of Murmuration, a file for each concern."""
