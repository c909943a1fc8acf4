"""Report, model card and plots, from the figures of a run."""
