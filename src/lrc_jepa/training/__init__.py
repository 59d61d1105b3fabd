"""Training: one loop for every system, checkpoints that carry all that inference needs."""
