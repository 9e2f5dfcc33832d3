"""Measurements: one module a question, each runs as `python -m bench.<name>` and prints one JSON line."""
