"""The embedded population: judgements of text whose truth is known."""
