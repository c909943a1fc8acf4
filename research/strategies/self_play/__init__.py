"""A policy that plays against itself, by labels that left their users randomized."""
