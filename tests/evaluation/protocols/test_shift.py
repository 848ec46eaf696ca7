"""`python -m interventune.evaluation shift` and `sensitivity` against transformers' own model, one
text at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev

import pytest
import torch
from torch import Tensor

from interventune.data_modules.batching.sets import full_query
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema.questions import QAExample, Variant
from interventune.data_modules.schema.spans import write_records
from interventune.data_modules.stories.questions import qa_examples
from interventune.data_modules.tasks.predicate_argument import predicate_argument_questions
from interventune.evaluation.protocols import shift as protocol
from interventune.evaluation.protocols.sensitivity import colour_stories
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import (
    Naive,
    evaluate,
    examples_of,
    save_ckpt,
    save_folder,
    told,
)
from tests.metrics.test_cka import naive_cka

States = tuple[Tensor, dict[tuple[int, int], Tensor]]
STORIES: list[QAExample] = list(islice(qa_examples("conversation_dev"), 12))


def shift(output: Path, *flags: str | Path) -> Cells:
    return evaluate(output, "shift", "--data", "stories:conversation_dev", "--limit", "12", *flags)


def perturbed(variant: Variant) -> list[QAExample]:
    results = [perturb(story, variant) for story in STORIES]
    return [result for result in results if isinstance(result, QAExample)]


def naive_states(folder: Path, examples: Sequence[QAExample]) -> list[States]:
    """Those of transformers for each text, unpadded."""
    naive = Naive(folder)
    encoding = Encoding().resolved(naive.model.config.model_type)
    return [
        naive.states(one.context, full_query(one, encoding, naive.tokenizer)) for one in examples
    ]


def cosines(one_LD: Tensor, other_LD: Tensor) -> list[float]:
    return torch.nn.functional.cosine_similarity(one_LD, other_LD, dim=-1).tolist()


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_cosines_match_transformers_on_single_texts(tmp_path: Path, architecture: str) -> None:
    folder = save_folder(tmp_path / "m", architecture)
    cells = shift(tmp_path / "out", "--checkpoint", folder, "--layers", "all", "--batch-size", "5")
    rows = {
        (row["variant"], row["id"], row["embedding"]): row for row in examples_of(tmp_path / "out")
    }
    originals = dict(
        zip((story.id for story in STORIES), naive_states(folder, STORIES), strict=True)
    )
    for variant in ("ts", "ts_r"):
        cls: list[list[float]] = []
        tokens: list[list[list[float]]] = []
        texts = {story.id: story.context for story in STORIES}
        examples = [
            one for one in perturbed(variant) if one.context != texts[one.id]
        ]  # `ts` may cut nothing
        for example, (second, others) in zip(examples, naive_states(folder, examples), strict=True):
            first, places = originals[example.id]
            cls.append(cosines(first, second))
            ((_, end),) = example.kept  # the variant begins as the original does
            tokens.append([cosines(places[at], others[at]) for at in others if at[1] <= end])
            row = rows[variant, example.id, "common"]
            assert (row["tokens"], row["stories"]) == (len(tokens[-1]), "single window")
            assert row["cosine"][-1] == pytest.approx(
                fmean(cos[-1] for cos in tokens[-1]), abs=1e-5
            )
        for layer, name in enumerate((0, 1, "last")):
            every = [cos[layer] for story in tokens for cos in story]
            expected = {
                ("cls", "cosine"): fmean(cos[layer] for cos in cls),
                ("cls", "std"): pstdev(cos[layer] for cos in cls),
                ("common", "cosine"): fmean(every),
                ("common", "std"): pstdev(every),
                ("common", "macro"): fmean(fmean(cos[layer] for cos in s) for s in tokens),
            }
            cell = {"checkpoint": "m", "variant": variant, "layer": name}
            for (embedding, measure), value in expected.items():
                for stories in ("", "single window"):
                    row = cells.row(measure, embedding=embedding, stories=stories, **cell)
                    assert (row["value"], row["n"]) == (pytest.approx(value, abs=1e-5), len(cls))


def test_stories_of_one_window_are_counted_apart(tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=44, doc_stride=24)
    cells = shift(tmp_path / "out", "--checkpoint", checkpoint, "--variants", "ts")
    rows = [row for row in examples_of(tmp_path / "out") if row["embedding"] == "common"]
    single = [row for row in rows if row["stories"]]
    assert (
        f"{12 - len(rows)} of 12 stories are too long for the model, or equal"
        in (tmp_path / "out/report.md").read_text()
    )
    assert 0 < len(single) < len(rows)
    for stories, chosen in (("", rows), ("single window", single)):
        cell = {"checkpoint": "short", "variant": "ts", "stories": stories, "layer": "last"}
        row = cells.row("macro", embedding="common", **cell)
        cosine = [row["cosine"][-1] for row in chosen]
        assert (row["value"], row["n"]) == (pytest.approx(fmean(cosine), abs=1e-13), len(cosine))


def test_rows_without_their_originals_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records([*STORIES, replace(perturbed("ts_r")[0], id="x")], tmp_path / "rows.jsonl")
    flags: list[str | Path] = ["--data", tmp_path / "rows.jsonl", "--output", tmp_path / "no"]
    flags += ["--checkpoint", save_folder(tmp_path / "m")]
    assert "without their originals" in told(capsys, "shift", *flags)


def test_cosine_and_cka_between_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CKA_TOKENS", 8)
    folders = [save_folder(tmp_path / name, seed=seed) for seed, name in enumerate("abc")]
    cells = shift(
        tmp_path / "out", "--checkpoint", *folders, "--variants", "ts_r", "--batch-size", "5"
    )
    states = {folder.name: naive_states(folder, STORIES) for folder in folders}
    for other in "bc":
        for layer in range(3):
            pairs = list(zip(states["a"], states[other], strict=True))
            cell = {"checkpoint": other, "reference": "a", "layer": layer}
            row = cells.row("cosine", embedding="cls", **cell)
            mean = fmean(cosines(x, y)[layer] for (x, _), (y, _) in pairs)
            assert (row["value"], row["n"]) == (pytest.approx(mean, abs=1e-5), len(STORIES))
            every = [cosines(x[at], y[at])[layer] for (_, x), (_, y) in pairs for at in x]
            assert cells("cosine", embedding="common", **cell) == pytest.approx(
                fmean(every), abs=1e-5
            )
            chosen = [
                [list(x)[round(i * (len(x) - 1) / 7)] for i in range(8)] for _, x in states["a"]
            ]
            x_ND, y_ND = (
                torch.stack(
                    [x[at][layer] for (_, x), c in zip(side, chosen, strict=True) for at in c]
                )
                for side in (states["a"], states[other])
            )
            assert cells("cka", embedding="common", **cell) == pytest.approx(
                naive_cka(x_ND, y_ND), abs=1e-5
            )
            found = cells("cka", embedding="cls", **cell)
            if layer == 0:  # the same for every story
                assert math.isnan(found)
            else:
                x_ND, y_ND = (
                    torch.stack([cls[layer] for cls, _ in states[n]]) for n in ("a", other)
                )
                assert found == pytest.approx(naive_cka(x_ND, y_ND), abs=1e-5)


def test_checkpoints_are_compared_as_far_as_depths_widths_and_vocabularies_go(
    tmp_path: Path,
) -> None:
    base, xlnet = save_folder(tmp_path / "base"), save_folder(tmp_path / "xlnet", "xlnet")
    deep = save_folder(tmp_path / "deep", num_hidden_layers=4)
    wide = save_folder(tmp_path / "wide", hidden_size=48)
    flags = ["--variants", "ts", "--layers", "all"]
    frame = shift(tmp_path / "out", "--checkpoint", base, deep, wide, xlnet, *flags).frame
    between = frame[frame["reference"] == "base"]
    assert set(between["checkpoint"]) == {"deep", "wide"}
    assert set(between[between["checkpoint"] == "deep"]["layer"]) == {"0", "1", "2"}
    assert set(between[between["checkpoint"] == "wide"]["measure"]) == {"cka"}
    deep_rows = frame[(frame["checkpoint"] == "deep") & (frame["reference"] == "")]
    assert set(deep_rows["layer"]) == {"0", "1", "2", "3", "4", "last"}
    assert set(deep_rows[deep_rows["against"] == "base"]["layer"]) == {"0", "1", "2", "last"}
    assert "another vocabulary" in (tmp_path / "out" / "report.md").read_text()


def test_colour_stories_exchange_one_colour_each() -> None:
    contexts = dict.fromkeys(x.context for *_, x in predicate_argument_questions())
    assert [text for (text, *_), _ in colour_stories()] == list(contexts)
    for (story, *exchanged), nouns in colour_stories():
        words = story.rstrip(".").split()
        for text, noun in zip(exchanged, nouns, strict=True):
            changed = text.rstrip(".").split()
            ((place, colour),) = ((i, new) for i, new in enumerate(changed) if new != words[i])
            assert words[place + 1] == noun
            assert colour not in words
            assert story.count(noun) == 1


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_distances_equal_those_of_single_texts(architecture: str, tmp_path: Path) -> None:
    """Against transformers' own model, one unpadded text at a time."""
    folder = save_folder(tmp_path / architecture, architecture, seed=4)
    cells = evaluate(
        tmp_path / "r", "sensitivity", "--checkpoint", f"m={folder}", "--batch-size", "7"
    )
    naive = Naive(folder)

    def states(text: str, word: str) -> torch.Tensor:
        first, (_, tokens) = text.index(word), naive.states(text, "")
        inside = [
            h_LD
            for (start, end), h_LD in tokens.items()
            if first <= start < end <= first + len(word)
        ]
        return torch.stack(inside).mean(0)

    found = examples_of(tmp_path / "r")
    assert len(found) == 2 * 130
    rows = iter(found)
    for s, ((story, *exchanged), nouns) in enumerate(colour_stories()):
        for n, noun in enumerate(nouns):
            row = next(rows)
            assert (row["sentence"], row["noun"]) == (story, noun)
            if s % 20 == 0:
                for field, text in (("own", exchanged[n]), ("other", exchanged[1 - n])):
                    before_LD, after_LD = states(story, noun), states(text, noun)
                    cosine_L = torch.nn.functional.cosine_similarity(before_LD, after_LD, dim=-1)
                    expected = (1 - cosine_L).tolist()
                    assert row[field] == pytest.approx([*expected, expected[-1]], abs=2e-6)
    differences = [row["own"][1] - row["other"][1] for row in found]
    row = cells.row("difference", checkpoint="m", layer=1)
    assert (row["value"], row["units"]) == (pytest.approx(fmean(differences), abs=1e-12), 130)
