"""Audits of single mechanisms, and mechanisms that were broken on purpose."""
