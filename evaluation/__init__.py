"""Protocols that evaluate a checkpoint or its predictions: `interventune evaluate PROTOCOL ...`."""
