"""One file per algorithm: its plan, its node half (a pure function) and its server half."""
