"""Linear heads: examples in columns, and every user's gradient."""
