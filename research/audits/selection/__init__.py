"""Audits of releases that choose one of several, or where to stop."""
