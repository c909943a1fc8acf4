"""Adjacency, sampling, clipping, noise, accounting and the ledger. No Flower, no model code."""
