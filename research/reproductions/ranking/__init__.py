"""The quality of private leaderboards: on synthetic arenas, and on real people's votes."""
