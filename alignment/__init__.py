"""From a reward to a policy: with public prompts and a saved reward, without private data."""
