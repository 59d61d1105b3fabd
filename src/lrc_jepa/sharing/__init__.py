"""Runs and datasets for others: packed with a card, sent, fetched, and shipped with the library."""
