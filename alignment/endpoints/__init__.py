"""Language models behind OpenAI-compatible chat endpoints: one that judges, one that writes."""
