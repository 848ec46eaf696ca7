"""`evaluate shift` and `sensitivity` against transformers' own model, one text at a time."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice, product
from math import isnan
from pathlib import Path
from statistics import fmean, stdev

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from interventune.data_modules.batching.sets import full_query
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema.questions import QAExample, Variant, write_records
from interventune.data_modules.stories.questions import qa_examples
from interventune.data_modules.tasks.yes_no import COLOURS, predicate_argument_questions
from interventune.evaluation.protocols import shift as protocol
from interventune.evaluation.protocols.sensitivity import colour_stories
from interventune.evaluation.statistics import estimate
from tests.evaluation.cells import Capsys, Cells, Patch, evaluate, examples_of, told
from tests.evaluation.checkpoints import Naive, save_ckpt, save_folder
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
    return [naive.states(x.context, full_query(x, encoding, naive.tokenizer)) for x in examples]


def cosines(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """(N, L) of N pairs of states (L, D)."""
    return torch.stack([cosine_similarity(one_LD, other_LD, dim=-1) for one_LD, other_LD in pairs])


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_cosines_match_transformers_on_single_texts(tmp_path: Path, architecture: str) -> None:
    folder = save_folder(tmp_path / "m", architecture)
    cells = shift(tmp_path / "out", "--checkpoint", folder, "--layers", "all", "--batch-size", "5")
    compared = [row for row in examples_of(tmp_path / "out") if "embedding" in row]
    rows = {(row["variant"], row["id"], row["embedding"]): row for row in compared}
    texts = {story.id: story.context for story in STORIES}
    originals = dict(zip(texts, naive_states(folder, STORIES), strict=True))
    for variant in ("ts", "ts_r"):
        # `ts` may cut nothing.
        examples = [one for one in perturbed(variant) if one.context != texts[one.id]]
        cls, tokens = list[tuple[Tensor, Tensor]](), list[Tensor]()
        for example, (second, others) in zip(examples, naive_states(folder, examples), strict=True):
            first, places = originals[example.id]
            cls.append((first, second))
            ((_, end),) = example.kept  # the variant begins as the original does
            tokens.append(cosines([(places[at], others[at]) for at in others if at[1] <= end]))
            row = rows[variant, example.id, "common"]
            assert row["tokens"] == len(tokens[-1])
            assert row["cosine"][-1] == pytest.approx(float(tokens[-1][:, -1].mean()), abs=1e-5)
        cls_NL, token_PL = cosines(cls), torch.cat(tokens)
        expected = {
            ("cls", "cosine"): cls_NL.mean(0),
            ("cls", "std"): cls_NL.std(0, correction=0),
            ("common", "cosine"): token_PL.mean(0),
            ("common", "std"): token_PL.std(0, correction=0),
            ("common", "macro"): torch.stack([token_TL.mean(0) for token_TL in tokens]).mean(0),
        }
        for place, value_L in expected.items():
            at = {"checkpoint": "m", "variant": variant, "embedding": place[0]}
            for layer, value in zip((0, 1, "last"), value_L.tolist(), strict=True):
                row = cells.row(place[1], layer=layer, **at)
                assert (row["value"], row["n"]) == (pytest.approx(value, abs=1e-5), len(cls))


def test_stories_too_long_for_the_model_are_counted(tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "short.ckpt", max_length=44, doc_stride=24)
    shift(tmp_path / "out", "--checkpoint", checkpoint, "--variants", "ts")
    rows = [row for row in examples_of(tmp_path / "out") if row.get("embedding") == "common"]
    left_out = f"{12 - len(rows)} questions in ts (too long for the model, or equal"
    assert left_out in (tmp_path / "out/report.md").read_text()


def test_rows_without_their_originals_are_refused(tmp_path: Path, capsys: Capsys) -> None:
    write_records([*STORIES, replace(perturbed("ts_r")[0], id="x")], tmp_path / "rows.jsonl")
    flags = ["--data", tmp_path / "rows.jsonl", "--checkpoint", save_folder(tmp_path / "m")]
    line = told(capsys, "shift", *flags, "--output", tmp_path / "no")
    assert "without their originals" in line


def test_cosine_and_cka_between_checkpoints(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(protocol, "CKA_TOKENS", 8)
    folders = [save_folder(tmp_path / name, seed=seed) for seed, name in enumerate("abc")]
    flags = ["--variants", "ts_r", "--batch-size", "5"]
    cells = shift(tmp_path / "out", "--checkpoint", *folders, *flags)
    cls, every, sampled = (dict[str, list[Tensor]]() for _ in range(3))
    for folder in folders:
        states = naive_states(folder, STORIES)
        stories = [[*tokens.values()] for _, tokens in states]
        cls[folder.name] = [first for first, _ in states]
        every[folder.name] = [*chain.from_iterable(stories)]
        sampled[folder.name] = [s[round(i * (len(s) - 1) / 7)] for s in stories for i in range(8)]
    embeddings = [("cls", cls, cls), ("common", every, sampled)]
    for other, layer, (embedding, compared, in_cka) in product("bc", range(3), embeddings):
        cell = {"checkpoint": other, "reference": "a", "embedding": embedding, "layer": layer}
        row = cells.row("cosine", **cell)
        mean = cosines([*zip(compared["a"], compared[other], strict=True)])[:, layer].mean()
        assert (row["value"], row["n"]) == (pytest.approx(float(mean), abs=1e-5), len(STORIES))
        if (embedding, layer) != ("cls", 0):  # the same for every story
            cka = naive_cka(*(torch.stack(in_cka[name])[:, layer] for name in ("a", other)))
            assert cells("cka", **cell) == pytest.approx(cka, abs=1e-5)
            assert cells.n("cka", **cell) == len(STORIES)


def test_checkpoints_are_compared_as_far_as_they_are_alike(tmp_path: Path) -> None:
    base, xlnet = save_folder(tmp_path / "base"), save_folder(tmp_path / "xlnet", "xlnet")
    deep = save_folder(tmp_path / "deep", num_hidden_layers=4)
    wide = save_folder(tmp_path / "wide", hidden_size=48)
    flags = ["--variants", "ts", "--layers", "all"]
    frame = shift(tmp_path / "out", "--checkpoint", base, deep, wide, xlnet, *flags).frame
    between = frame[(frame["reference"] == "base") & (frame["n"] > 0)]
    assert set(between["checkpoint"]) == {"deep", "wide"}
    assert set(between[between["checkpoint"] == "deep"]["layer"]) == {"0", "1", "2"}
    assert set(between[between["checkpoint"] == "wide"]["measure"]) == {"cka"}
    deep_rows = frame[(frame["checkpoint"] == "deep") & (frame["reference"] == "")]
    assert set(deep_rows["layer"]) == {"0", "1", "2", "3", "4", "last"}
    assert set(deep_rows[deep_rows["against"] == "base"]["layer"]) == {"0", "1", "2", "last"}
    assert "another vocabulary" in (tmp_path / "out" / "report.md").read_text()


def test_colour_stories_remove_one_colour_each() -> None:
    contexts = dict.fromkeys(x.context for *_, x in predicate_argument_questions())
    assert {text for (text, *_), _ in colour_stories()} <= {*contexts}
    assert len(colour_stories()) == 130
    for (story, *shorter), nouns in colour_stories():
        words = story.split()
        for text, noun in zip(shorter, nouns, strict=True):
            (place,) = (i for i in range(len(words)) if words[:i] + words[i + 1 :] == text.split())
            assert words[place] in COLOURS
            assert words[place + 1].rstrip(".") == noun
            assert story.count(noun) == 1


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_distances_equal_those_of_single_texts(architecture: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "m", architecture, seed=4)
    cells = evaluate(tmp_path / "r", "sensitivity", "--checkpoint", folder, "--batch-size", "7")
    naive = Naive(folder)

    def states(text: str, word: str) -> Tensor:
        first, (_, tokens) = text.index(word), naive.states(text, "")
        last = first + len(word)
        inside = [h_LD for (start, end), h_LD in tokens.items() if first <= start < end <= last]
        return torch.stack(inside).mean(0)

    rows = examples_of(tmp_path / "r")
    assert len(rows) == 2 * 130
    for i, row in enumerate(rows):
        (story, *shorter), nouns = colour_stories()[i // 2]
        noun = nouns[i % 2]
        assert (row["sentence"], row["noun"]) == (story, noun)
        if i // 2 % 20 == 0:
            for field, text in (("own", shorter[i % 2]), ("other", shorter[1 - i % 2])):
                (cosine_L,) = cosines([(states(story, noun), states(text, noun))])
                expected = (1 - cosine_L).tolist()
                assert row[field] == pytest.approx([*expected, expected[-1]], abs=2e-6)
    difference = fmean(row["own"][1] - row["other"][1] for row in rows)
    row = cells.row("difference", checkpoint="m", layer=1)
    assert (row["value"], row["units"]) == (pytest.approx(difference, abs=1e-12), 130)


def test_intervals_of_cosines_end_at_1() -> None:
    distances = [0.0] * 9 + [0.5]
    rows = pd.DataFrame({"tokens": 1.0, "distance": distances, "unit": range(10)})
    value, low, high, *_ = estimate(protocol.SHIFT.statistics["cosine"], rows)
    assert value + 2 * stdev(distances) / 10**0.5 > 1
    assert -1 < low < value < high < 1
    same = estimate(protocol.SHIFT.statistics["cosine"], rows.assign(distance=0.0))
    assert (same.value, isnan(same.low)) == (1, True)  # as in layer 0
