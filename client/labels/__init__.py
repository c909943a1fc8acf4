"""Labels that leave a node randomized: on what terms, told once, and remembered."""
