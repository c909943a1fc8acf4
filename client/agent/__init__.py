"""The owner's software: the agent, its policy, its ledger and its key."""
