"""An app of one's own to begin with, and what it is written from."""
