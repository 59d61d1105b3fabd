"""Compact two-stream world models: learn from video, plan to image goals, see what was learned."""

__version__ = "0.1.0"
