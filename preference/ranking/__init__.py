"""From votes to a board: what of them is released, and what is concluded from the release."""
