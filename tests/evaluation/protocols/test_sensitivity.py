"""`python -m evaluation sensitivity`: its stories, and distances against single texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest
import torch

from data_modules.tasks.predicate_argument import predicate_argument_questions
from evaluation.protocols.sensitivity import colour_stories
from tests.evaluation.checkpoints import Naive, evaluate, examples_of, save_folder


def test_colour_stories_exchange_one_colour_each() -> None:
    stories = colour_stories()
    assert [story.text for story in stories] == list(
        dict.fromkeys(x.context for *_, x in predicate_argument_questions())
    )
    for story in stories:
        words = story.text.rstrip(".").split()
        for text, noun in zip(story.exchanged, story.nouns, strict=True):
            changed = text.rstrip(".").split()
            (place,) = (i for i, pair in enumerate(zip(words, changed, strict=True)) if pair[0] != pair[1])
            assert words[place + 1] == noun
            assert changed[place] not in words
            assert Counter(words)[noun] == story.text.count(noun) == 1


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_distances_equal_those_of_single_texts(architecture: str, tmp_path: Path) -> None:
    """Against transformers' own model, one unpadded text at a time."""
    folder = save_folder(tmp_path / architecture, architecture, seed=4)
    cells = evaluate(tmp_path / "r", "sensitivity", "--checkpoint", f"m={folder}", "--batch-size", "7")
    naive = Naive(folder)

    def states(text: str, word: str) -> torch.Tensor:
        first, (_, tokens) = text.index(word), naive.states(text, "")
        inside = [h_LD for (start, end), h_LD in tokens.items() if first <= start < end <= first + len(word)]
        return torch.stack(inside).mean(0)

    found = examples_of(tmp_path / "r")
    assert len(found) == 2 * 130
    rows = iter(found)
    for s, story in enumerate(colour_stories()):
        for n, noun in enumerate(story.nouns):
            row = next(rows)
            assert (row["sentence"], row["noun"]) == (story.text, noun)
            if s % 20 == 0:
                for field, text in (("own", story.exchanged[n]), ("other", story.exchanged[1 - n])):
                    before_LD, after_LD = states(story.text, noun), states(text, noun)
                    cosine_L = torch.nn.functional.cosine_similarity(before_LD, after_LD, dim=-1)
                    expected = (1 - cosine_L).tolist()
                    assert row[field] == pytest.approx([*expected, expected[-1]], abs=2e-6)
    differences = [row["own"][1] - row["other"][1] for row in found]
    row = cells.row("difference", checkpoint="m", layer=1)
    assert (row["value"], row["units"]) == (pytest.approx(fmean(differences), abs=1e-12), 130)
