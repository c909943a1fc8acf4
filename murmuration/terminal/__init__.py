"""What everything that is printed passes through, and what it looks like."""
