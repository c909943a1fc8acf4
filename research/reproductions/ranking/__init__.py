"""How well private boards rank: synthetic arenas, and real people's votes."""
