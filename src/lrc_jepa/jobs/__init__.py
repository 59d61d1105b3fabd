"""Pieces of work with an order, done one after the other or side by side; where is the executor's affair."""
