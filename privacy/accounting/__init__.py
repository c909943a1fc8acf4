"""Privacy accounting: the ε of releases together, and the ledger that is written before them."""
