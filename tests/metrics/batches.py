"""Batches to test metrics with, and UnQover's formulas as plain loops over plain numbers."""

import math
from collections import defaultdict
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    score_NVS: Tensor
    class_N: Tensor
    subject_NS: Tensor
    attribute_N: Tensor


def random_batch(n: int, classes: int, subjects: int, attributes: int, seed: int = 0) -> Batch:
    make = torch.Generator().manual_seed(seed)
    first = torch.randint(subjects, (n,), generator=make)
    second = (first + torch.randint(1, subjects, (n,), generator=make)) % subjects
    return Batch(
        torch.rand(n, 4, 2, generator=make, dtype=torch.float64),
        torch.randint(classes, (n,), generator=make),
        torch.stack((first, second), dim=1),
        torch.randint(attributes, (n,), generator=make),
    )


def naive_c(score: list[list[float]]) -> float:
    (s12, s12n, s21, s21n) = score
    b = [(s12[x] + s21[x]) / 2 - (s12n[x] + s21n[x]) / 2 for x in (0, 1)]
    return (b[0] - b[1]) / 2


def naive_delta(score: list[list[float]]) -> float:
    return fmean(abs(score[q][x] - score[2 + q][x]) for q in (0, 1) for x in (0, 1))


def naive_eps(score: list[list[float]]) -> float:
    return fmean(abs(score[o][x] - score[o + 1][1 - x]) for o in (0, 2) for x in (0, 1))


def naive_normalised(score: list[list[float]]) -> list[list[float]]:
    return [[s / sum(pair) for s in pair] for pair in score]


def sign(value: float) -> float:
    return (value > 0) - (value < 0)


def naive_class(batch: Batch, k: int) -> dict[str, Any]:
    """Every aggregate of class k."""
    columns = (value.tolist() for value in batch)
    rows = [(score, *pair, a) for score, c, pair, a in zip(*columns, strict=True) if c == k]
    result: dict[str, Any] = {"n": len(rows)}
    for suffix, change in (("", lambda s: s), ("_normalised", naive_normalised)):
        xa, pairs = defaultdict(list), defaultdict(list)
        for score, i, j, a in rows:
            c = naive_c(change(score))
            for x, value in ((i, c), (j, -c)):
                xa[x, a].append(value)
            pairs[min(i, j), max(i, j), a].append(c if i < j else -c)
        gamma = {key: fmean(values) for key, values in xa.items()}
        eta = {key: fmean(map(sign, values)) for key, values in xa.items()}
        theta: dict[tuple[int, int], float] = defaultdict(float)
        for (i, j, _), values in pairs.items():
            theta[i, j] = max(theta[i, j], abs(fmean(values)))
        of_subject = [[key for key in gamma if key[0] == x] for x in {x for x, _ in gamma}]
        result |= {
            f"mu{suffix}": fmean(max(abs(gamma[key]) for key in keys) for keys in of_subject),
            f"eta{suffix}": fmean(fmean(abs(eta[key]) for key in keys) for keys in of_subject),
            f"theta{suffix}": fmean(theta.values()),
        }
    measures = {"mean_abs_c": lambda score: abs(naive_c(score)), "delta": naive_delta}
    measures |= {"eps": naive_eps, "mass": lambda score: fmean(map(math.fsum, score))}
    return result | {name: fmean(of(row[0]) for row in rows) for name, of in measures.items()}


class ShiftBatch(NamedTuple):
    cls_N: Tensor
    token_P: Tensor
    example_P: Tensor


def shift_batch(n: int, spread: float = 1.0) -> ShiftBatch:
    """Cosines from 1 - 2 spread to 1, some at the edges; every third example has no pair."""
    generator = torch.Generator().manual_seed(0)
    cls_N, token_P = (1 - 2 * spread * torch.rand(k, generator=generator) for k in (n, 5 * n))
    token_P[::7], token_P[1::7] = 1.0, 1 - 2 * spread
    example_P = torch.randint(n, (5 * n,), generator=generator)
    keep = example_P % 3 != 2
    return ShiftBatch(cls_N, token_P[keep], example_P[keep])


def embeddings(n: int, d: int, e: int, seed: int = 0, layers: int = 2) -> tuple[Tensor, Tensor]:
    """Related embeddings (L, N, D) and (L, N, E), with a few large dimensions, float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x_LND = normal(layers, n, d) * (1 + 5 * normal(d).square()) + normal(d)
    return x_LND, x_LND @ normal(layers, d, e) + 3 * normal(layers, n, e) - 2
