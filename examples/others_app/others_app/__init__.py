"""An app that leaves privacy out."""
