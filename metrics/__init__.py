"""Metrics: pure functions over tensors and arrays."""
