"""What a program does with Murmuration, a file for each concern."""
