"""Small labelled texts, and a scorer trained on them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evaluation.__main__ import main

_WORDS = {
    "toxicity": ("stupid", "awful", "rotten"),
    "severe_toxicity": ("vile", "loathsome"),
    "sexually_explicit": ("naked", "lewd"),
    "threat": ("hurt you", "find you"),
    "profanity": ("damn", "bloody"),
    "identity_attack": ("you people", "your kind"),
}
_PLAIN = ("the", "a", "train", "map", "book", "garden", "went", "under", "with", "café", "road", "green")


def labelled_rows(n: int = 120, seed: int = 0) -> list[dict[str, Any]]:
    """Plain words, and for about every third attribute and row a word that gives it away."""
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        words = rng.choices(_PLAIN, k=8)
        labels = {name: rng.random() < 0.3 for name in _WORDS}
        words += [rng.choice(_WORDS[name]) for name, on in labels.items() if on]
        rng.shuffle(words)
        rows.append({"text": " ".join(words), **{name: 0.9 * on for name, on in labels.items()}})
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def trained_scorer(folder: Path) -> Path:
    """A scorer of all six attributes, made by the command."""
    given = write_rows(folder / "labelled.jsonl", labelled_rows())
    output = folder / "scorer.json"
    assert (
        main(["train-scorer", "--input", str(given), "--output", str(output), "--max-features", "300"]) == 0
    )
    return output
