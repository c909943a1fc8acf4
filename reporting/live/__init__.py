"""What is shown at a terminal, or sent to a tracker, while a run goes on."""
