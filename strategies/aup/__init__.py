"""AUP-RLHF: concentration filtering; as published, corrected, and centred."""
