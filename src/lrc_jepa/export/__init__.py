"""Trained models as files for other programs; what runs them is `runtime`."""
