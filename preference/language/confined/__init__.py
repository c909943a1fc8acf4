"""Untrusted tokenizers, in a process with limits."""
