"""Evaluation: each experiment turns checkpoints and data into rows."""
