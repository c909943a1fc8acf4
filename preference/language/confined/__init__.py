"""A tokenizer that somebody else wrote, in a process that may take only so much."""
