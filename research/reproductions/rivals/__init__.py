"""The strategies beside their rivals, on judgements of real people."""
