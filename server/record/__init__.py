"""What a run writes and reads again: its folder, lock, files, checkpoints, result and lineage."""
