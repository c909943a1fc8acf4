"""Surveys: statistics of all users' judgements, from one noisy sum."""
