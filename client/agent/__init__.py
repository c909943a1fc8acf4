"""What the owner of the data installs: the agent, its policy, its ledger and its key."""
