"""What the starting model says about the training groups: anchors of the irrelevant loss, and dominance.

Computed once, by one process per node, kept on disk under a fingerprint of everything that it depends on: a
changed model, text or option computes anew, an interrupted pass leaves nothing behind.

Shape letters: N groups, V variants of a group (4), S subjects (2), E boundaries (start, end).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from filelock import FileLock
from torch import Tensor

from data_modules.batching.group_rows import score_rows, token_budget
from data_modules.batching.sets import GroupSet
from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.groups.advice import unadvised
from data_modules.schema import Group
from metrics.bias.readings import dominant_subject, pushed_subject
from metrics.bias.sums import accumulate, empty_sums
from models.checkpoint import fingerprint
from training.modules.qa import QAModule
from training.stopping.checkpoint_io import AtomicCheckpointIO

log = logging.getLogger(__name__)


class Reference(NamedTuple):
    """The starting model's view of the training groups, in their order."""

    log_prob_NVSE: Tensor
    """Boundary log-probabilities, float32."""
    pushed_NV: Tensor
    """Which subject (0 or 1) the adversarial loss raises in each variant."""

    def to(self, device: torch.device) -> Reference:
        """Move to a device; nothing happens when there already."""
        return Reference(self.log_prob_NVSE.to(device), self.pushed_NV.to(device))


def reference_pass(
    module: QAModule, groups: GroupSet, *, target: str, rows_per_batch: int, cache: Path
) -> Reference:
    """Score `groups` with the weights as they are now, or read the scores from the cache.

    Dominance always comes from the unadvised groups (LEI's paper): the sign of the mean pair score over the
    templates of a pair and an attribute. Anchors come from the unadvised groups or from the same advised
    ones, by `target`.

    Args:
        module: the model, its device and precision.
        groups: the training groups.
        target: `no_advice` or `same_advice`.
        rows_per_batch: rows that are scored together.
        cache: folder of the scores.
    """
    bare = unadvised(groups.groups)
    path = cache / f"{_fingerprint(module, groups.groups, target)}.pt"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Whoever comes first scores, and the others find the file: once per node, or once for all where nodes
        # share the folder. No collective operation waits meanwhile, so none runs into its time limit.
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                bare_set = GroupSet(bare, module.datamodule.tokenizer, module.encoding)
                scores = {"unadvised": score_groups(module, bare_set, rows_per_batch, "reference pass")}
                if target == "same_advice":
                    scores["advised"] = score_groups(
                        module, groups, rows_per_batch, "reference pass, advised"
                    )
                AtomicCheckpointIO().save_checkpoint(scores, path)
    log.info("reference scores: %s", path)
    scores = torch.load(path, map_location="cpu", weights_only=True)
    return _gather(groups, bare, scores)


def _gather(groups: GroupSet, bare: Sequence[Group], scores: dict[str, Tensor]) -> Reference:
    row = {group.unadvised_key: i for i, group in enumerate(bare)}
    index_N = torch.tensor([row[group.unadvised_key] for group in groups.groups])
    bare_log_prob = scores["unadvised"]
    anchors = scores.get("advised", bare_log_prob[index_N])
    return Reference(anchors.float(), pushed_subject(_dominant(groups, index_N, bare_log_prob)))


def _dominant(groups: GroupSet, index_N: Tensor, bare_log_prob_MVSE: Tensor) -> Tensor:
    """The subject (0 or 1) that each group's pair prefers for its attribute, before any fine-tuning.

    The sums run over the distinct unadvised groups, so that every template counts once.
    """
    num_subjects = len(groups.ids.subjects)
    subject_NS, attribute_N = map(torch.from_numpy, (groups.ids.subject_NS, groups.ids.attribute_N))
    first_M = torch.full((len(bare_log_prob_MVSE),), -1)
    first_M[index_N] = torch.arange(len(index_N))  # any one advised group of each unadvised one
    sums = empty_sums(1, num_subjects, len(groups.ids.attributes))
    score_MVS = bare_log_prob_MVSE.double().mean(-1).exp()
    class_M = torch.zeros_like(first_M)
    accumulate(sums, score_MVS, class_M, subject_NS[first_M], attribute_N[first_M], num_subjects)
    dominant = dominant_subject(sums.c_KPA[0], sums.count_KPA[0], subject_NS, attribute_N, num_subjects)
    if ties := int(dominant.tie_N.sum()):
        log.warning("%d groups whose subjects tie exactly: the first counts as dominant", ties)
    return dominant.index_N


@torch.no_grad()
def score_groups(module: QAModule, groups: GroupSet, rows_per_batch: int, what: str) -> Tensor:
    """Boundary log-probabilities (N, V, S, E) of all groups, on the CPU, in their order.

    The module is back on the CPU afterwards: what is sharded must not lie whole on a device.
    """
    device = module.trainer.strategy.root_device
    training = module.training
    module.to(device).eval()
    tokens = token_budget(rows_per_batch, module.encoding.max_length, device)
    with module.trainer.precision_plugin.forward_context():
        result = score_rows(groups, module.model.group_log_probs, tokens=tokens, device=device, what=what)
    module.cpu().train(training)
    return result


def _fingerprint(module: QAModule, groups: Sequence[Group], target: str) -> str:
    digest = hashlib.sha256(fingerprint(module.model).encode())
    options = {
        "target": target,
        "encoding": asdict(module.encoding),
        "precision": str(module.trainer.precision),
        "tokenizer": tokenizer_files(module.datamodule.tokenizer),
    }
    digest.update(json.dumps(options, sort_keys=True).encode())
    for group in groups:
        digest.update(repr(group).encode())
    return digest.hexdigest()[:32]
