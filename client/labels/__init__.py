"""Labels that leave a node randomized: the terms, and the memory of each label."""
