"""Commands about models that are there, or are made without users."""
