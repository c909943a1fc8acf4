"""Chowdhury et al. 2024: its figure, its rates, and many labels of each user."""
