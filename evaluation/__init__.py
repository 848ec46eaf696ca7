"""Protocols that evaluate a checkpoint or its predictions: `python -m evaluation PROTOCOL ...`."""
