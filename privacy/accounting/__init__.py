"""What releases cost together, and the ledger in which it is written before they exist."""
