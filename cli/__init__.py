"""The commands of ``murmuration``, one a file."""
