"""Metrics: pure functions over tensors, and thin torchmetrics classes that accumulate sums."""
