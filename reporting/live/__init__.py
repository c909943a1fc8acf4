"""What is shown at a terminal while a run goes on, and of its ledger."""
