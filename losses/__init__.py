"""Losses: pure functions over tensors first, one thin `nn.Module` around them."""
