"""What a run will cost, and which strategy and sizes to choose."""
