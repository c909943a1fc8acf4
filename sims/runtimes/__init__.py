"""Where a run runs: this process, Flower's simulation, or a Ray cluster; with a live view."""
