"""Boards: public items ranked by people's votes, from one noisy sum of all that voters gave."""
