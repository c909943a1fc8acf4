"""One thing of each kind that a package can bring to Murmuration."""
