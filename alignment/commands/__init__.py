"""Commands that align a language model, let it write, and compare what it writes."""
