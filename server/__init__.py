"""The ServerApp: run directory, checkpoints, evaluation, model export and reports."""
