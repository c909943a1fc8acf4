"""Figures of Charles et al. 2024: sampling examples or users, at user level."""
