"""Metrics: pure functions over tensors, then thin torchmetrics classes that hold sums."""
