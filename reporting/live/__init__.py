"""Terminal output about a run in progress, and about its ledger."""
