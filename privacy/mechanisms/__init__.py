"""Everything that samples, clips, randomizes or adds noise."""
