"""Protocols that probe a checkpoint or its predictions: `python -m evaluation PROTOCOL ...`."""
