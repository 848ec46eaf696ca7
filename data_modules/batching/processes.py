"""Of how many processes this is one, and what they must agree on."""

from __future__ import annotations

import torch.distributed as dist

from storage.errors import DataError


def here() -> tuple[int, int]:
    """The rank of this process and how many there are; (0, 1) where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def refuse_different(generated: list[str]) -> None:
    """DataError where a language model wrote other sentences on another machine."""
    everywhere: list[list[str]] = [[] for _ in range(here()[1])]
    if generated and len(everywhere) > 1:
        dist.all_gather_object(everywhere, generated)
        if any(theirs != generated for theirs in everywhere):
            raise DataError(
                "data.interventions.generator: it wrote different sentences on different machines; let them "
                "share the folder data.cache, or write rows with `python -m data_modules perturb` first"
            )
