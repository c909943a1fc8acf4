"""What a program does with models and answers, a file for each concern."""
