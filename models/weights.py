"""Checks and digests of weights."""

import json
from collections.abc import Mapping
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

from interventune.storage.documents import DataError


def nonfinite(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors with NaN or infinity."""
    return [name for name, weight in weights.items() if not weight.isfinite().all()]


def refuse_nonfinite(model: nn.Module, path: str) -> None:
    """DataError if weights from `path` are NaN or infinite: the answers of such a model would look
    like "unknown".
    """
    weights = model.state_dict()
    if names := nonfinite(weights):
        raise DataError(
            f"{path}: {len(names)} of {len(weights)} weights are not finite numbers (first: "
            f"{names[0]}): its training diverged; choose an earlier checkpoint, or train again "
            "with a smaller learning rate"
        )


OF_THIS_COPY = ("_name_or_path", "transformers_version", "architectures", "dtype")
"""Settings of a configuration that say where weights come from, or repeat their type."""


def fingerprint(model: Any) -> str:
    """A digest of the configuration and of the names, shapes, dtypes and values of all weights:
    equal only for models that compute the same. Equal weights with another `rope_theta` are another
    model.
    """

    def computed(settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        return {str(name): computed(x) for name, x in settings.items() if name not in OF_THIS_COPY}

    digest = xxhash.xxh3_128()
    digest.update(
        json.dumps(computed(model.config.to_dict()), sort_keys=True, default=str).encode()
    )
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
