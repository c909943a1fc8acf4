"""Models that can be learnt, a kind a file; `model` says what each must offer."""
