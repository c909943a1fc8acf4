"""Reruns about aligned policies: what papers show of rewards in use."""
