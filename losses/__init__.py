"""Losses: pure functions over tensors, and one thin `nn.Module` around them."""
