"""The noise of a run: which kind it draws, and what of it rounds share."""
