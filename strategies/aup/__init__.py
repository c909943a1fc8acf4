"""AUP-RLHF: concentration filtering; as published, and centred."""
