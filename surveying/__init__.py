"""Surveys: what a crowd's judgements are like, from one noisy sum of all that users answered."""
