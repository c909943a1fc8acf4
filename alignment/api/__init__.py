"""Python functions on models and answers, a file for each concern."""
