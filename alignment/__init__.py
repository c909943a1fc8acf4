"""From a reward to a policy: public prompts, a saved reward, and nobody's private data."""
