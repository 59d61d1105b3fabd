"""Measurements of the library itself: `lrc bench`, and the script that kills training runs."""
