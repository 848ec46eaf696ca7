"""`python -m evaluation sensitivity`: stimuli, distances against single texts, correlations against numpy."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from data_modules.encoding.windows import Encoding
from data_modules.schema import Rejected, Span
from data_modules.tasks.predicate_argument import predicate_argument_rows
from evaluation.protocols.sensitivity import changes as c
from evaluation.protocols.sensitivity.changes import WordChange, colour_changes, follow
from evaluation.protocols.sensitivity.command import BINDING, CUT, SAME_TOKENS
from metrics.intervals import mean_interval
from models.backbones import Backbone
from models.checkpoint import start
from models.heads.answers import RationaleModel
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of, save_folder, save_model, told

ALL = list(colour_changes())
STORY = "the red cup was in the blue lamp ."
"""Of words that the tiny tokenizers know."""


def change(**fields: Any) -> WordChange:
    given = {"sentence": STORY, "target": "cup", "changed": "red", "relation": "modifier"}
    return WordChange(**(given | fields))


def small() -> list[WordChange]:
    """Three templates of known words, with all relations of the embedded stimuli but the verb."""
    rows = []
    colours = ("red", "blue", "green", "black")
    for t, text in enumerate(("the {} cup was in the {} lamp .", "a {} book and a {} coat .")):
        first, second = (word for word in text.split() if word in ("cup", "lamp", "book", "coat"))
        for i, one in enumerate(colours):
            two, third = colours[i - 1], colours[i - 2]
            questions = ((f"is the {first} {one} ?", "yes"), (f"is the {first} {two} ?", "no"))
            shared = {"sentence": text.format(one, two), "template": str(t), "questions": questions}
            for relation, colour in ((c.MODIFIER, one), (c.OTHER_MODIFIER, two)):
                row = {"target": first, "changed": colour, "relation": relation, **shared}
                rows += [WordChange(**row), WordChange(**row, replacement=third)]
            rows.append(
                WordChange(target=first, changed=second, replacement="drum", relation="argument", **shared)
            )
    return rows


def write(path: Path, rows: list[WordChange]) -> Path:
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT, an XLNet, and a BERT with heads for yes and no."""
    root = tmp_path_factory.mktemp("room")
    save_folder(root / "bert", seed=4)
    save_folder(root / "xlnet", "xlnet", seed=5)
    torch.manual_seed(5)
    backbone = Backbone(
        architecture="bert", checkpoint="random", config={"vocab_size": 512, "hidden_size": 32}
    )
    save_model(root / "typed.ckpt", start(backbone, RationaleModel), Encoding())
    write(root / "small.jsonl", small())
    return root


def run(output: Path, *arguments: str | Path) -> Cells:
    return evaluate(output, "sensitivity", *arguments)


def test_fourteen_changes_of_each_of_the_130_stories() -> None:
    assert {row.sentence for row in ALL} == {row.story for row in predicate_argument_rows()}
    assert set(Counter(row.sentence for row in ALL).values()) == {14}
    counts = Counter((row.relation, row.change) for row in ALL)
    assert counts == {
        **{(r, how): 260 for r in (c.MODIFIER, c.OTHER_MODIFIER) for how in ("removed", "exchanged")},
        **{(r, "exchanged"): 260 for r in ("argument", "verb", "head")},
    }
    for row in ALL:
        found = follow(row)
        assert not isinstance(found, Rejected), row
        words = [text.rstrip(".").split() for text in (found.sentence, found.changed)]
        lost, new = (Counter(a) - Counter(b) for a, b in (words, words[::-1]))
        assert (list(lost), list(new)) == ([row.changed], [row.replacement] if row.replacement else [])
        assert row.replacement not in words[0]
        for text, span in ((found.sentence, found.before), (found.changed, found.after)):
            assert text[span.start : span.end] == row.target
    # The modifier stands before its noun.
    assert all(f"{r.changed} {r.target}" in r.sentence for r in ALL if r.relation == c.MODIFIER)
    assert not any(f"{r.changed} {r.target}" in r.sentence for r in ALL if r.relation == c.OTHER_MODIFIER)


def test_what_cannot_be_followed() -> None:
    assert follow(change(target="the")) == Rejected(STORY, c.NOT_ONCE)
    assert follow(change(changed="purple")) == Rejected(STORY, c.NOT_ONCE)
    assert follow(change(changed="red cup")) == Rejected(STORY, c.SAME)
    assert follow(change(replacement="cup")) == Rejected(STORY, c.LOST)
    found = follow(change(target="lamp"))
    assert not isinstance(found, Rejected)
    assert (found.changed, found.after) == ("the cup was in the blue lamp .", Span(24, 28, "lamp"))


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_distances_equal_those_of_single_texts(architecture: str, room: Path, tmp_path: Path) -> None:
    """Against transformers' own model, one unpadded text at a time; also a word of two tokens."""
    folder = room / architecture
    rows = [*small(), change(target="red cup", changed="blue", relation="modifier")]
    stimuli = write(tmp_path / "s.jsonl", rows)
    flags = ("--checkpoint", f"m={folder}", "--stimuli", stimuli, "--batch-size", "7")
    cells = run(tmp_path / "r", *flags, "--question", "is it red ?")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval().base_model

    @torch.no_grad()
    def vectors(text: str, word: str) -> torch.Tensor:
        encoded = tokenizer("is it red ?", text, return_tensors="pt", return_offsets_mapping=True)
        inputs = {name: encoded[name] for name in tokenizer.model_input_names}
        hidden_LTD = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)[:, 0].double()
        first = text.index(word)
        inside = [
            t
            for t, (side, (a, b)) in enumerate(
                zip(encoded.sequence_ids(0), encoded["offset_mapping"][0].tolist(), strict=True)
            )
            if side == 1 and first <= a and b <= first + len(word)
        ]
        assert len(inside) == len(word.split())
        return hidden_LTD[:, inside].mean(1)

    found = examples_of(tmp_path / "r")
    assert len(found) == len(rows)
    for row, example in zip(rows, found, strict=True):
        assert (example["relation"], example["change"]) == (row.relation, row.change)
        both = [vectors(text, row.target) for text in (row.sentence, example["changed"])]
        expected = 1 - torch.nn.functional.cosine_similarity(*both, dim=-1)
        assert example["distances"] == pytest.approx(expected.tolist(), abs=2e-6)
        assert example["distance"] == example["distances"][-1]
    own = [
        (e["distances"][1], e["sentence"])
        for e in found
        if e["relation"] == c.MODIFIER and e["change"] == "removed"
    ]
    value, interval, n = mean_interval(*zip(*own, strict=True))
    row = cells.row("distance", checkpoint="m", relation=c.MODIFIER, change="removed", layer=1)
    assert (row["value"], row["low"], row["high"], row["n"]) == pytest.approx((value, *interval, n), abs=1e-9)
    shown = [e for e in found if e["change"] == "exchanged"]
    texts = dict.fromkeys(e["sentence"] for e in shown)
    differences = [
        fmean(e["distance"] for e in shown if (e["sentence"], e["relation"]) == (text, c.MODIFIER))
        - fmean(e["distance"] for e in shown if (e["sentence"], e["relation"]) == (text, c.OTHER_MODIFIER))
        for text in texts
    ]
    row = cells.row("distance", checkpoint="m", relation=BINDING, change="exchanged", layer=2)
    assert (row["value"], row["n"]) == (pytest.approx(fmean(differences), abs=1e-9), len(texts))
    assert "has no heads for yes and no" in (tmp_path / "r" / "report.md").read_text()


def test_correlation_with_right_answers_over_sentences(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against numpy; within templates, their means are taken off."""
    from evaluation.answering.checkpoint import QuestionCheckpoint
    from evaluation.answering.interface import Answer

    def answers(self: Any, examples: Any, what: str) -> Any:
        return (Answer(i, "yes" if len(e.context) % 3 or i % 4 else "no") for i, e in enumerate(examples))

    monkeypatch.setattr(QuestionCheckpoint, "answers", answers)
    flags = (
        "--checkpoint",
        f"m={room / 'typed.ckpt'}",
        f"n={room / 'bert'}",
        "--stimuli",
        room / "small.jsonl",
    )
    cells = run(tmp_path / "r", *flags)
    rows = [row for row in examples_of(tmp_path / "r") if row["checkpoint"] == "m"]
    asked = c.questions_of(small())
    said = [answer.text for answer in answers(None, asked, "")]
    right: dict[str, list[bool]] = {}
    for example, text in zip(asked, said, strict=True):
        right.setdefault(example.context, []).append(text == example.answer_type)
    accuracy = {text: fmean(values) for text, values in right.items()}
    assert cells("accuracy", checkpoint="m") == pytest.approx(fmean(accuracy.values()))
    assert cells.n("accuracy", checkpoint="m") == 8
    for layer in (1, 2):
        x = np.array(list(accuracy.values()))
        moved = [r for r in rows if (r["relation"], r["change"]) == ("argument", "exchanged")]
        y = np.array([r["distances"][layer] for r in moved])
        template = np.array([r["template"] for r in moved])
        place = {"checkpoint": "m", "relation": "argument", "change": "exchanged", "layer": layer}
        assert cells("r", **place) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)
        for t in ("0", "1"):
            x[template == t] -= x[template == t].mean()
            y[template == t] -= y[template == t].mean()
        assert cells("r_within", **place) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)
        assert cells.n("r", **place) == 8
    assert set(cells.frame[cells.frame["checkpoint"] == "n"]["measure"]) == {"distance"}


def test_left_out_and_told(room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A word that stands there twice, a change that the tokenizer does not see, a word beyond the window."""
    long = " ".join(["the sun was out ."] * 150)
    rows = [
        *(change(), change(target="the"), change(changed="red", replacement="RED")),
        change(sentence=f"{long} a red cup .", changed="red"),
    ]
    cells = run(tmp_path / "r", "--checkpoint", room / "bert", "--stimuli", write(tmp_path / "s.jsonl", rows))
    assert cells.n("distance", checkpoint="bert", relation="modifier", change="removed", layer=2) == 1
    text = (tmp_path / "r" / "report.md").read_text()
    assert f"Left out of 4 changes: 1 {c.NOT_ONCE}." in text
    assert "bert leaves out 2 changes" in text
    assert Counter(row.get("failure") for row in examples_of(tmp_path / "r")) == {
        None: 1,
        SAME_TOKENS: 1,
        CUT: 1,
    }
    assert "a word moves with its modifier removed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([], "no rows"),
        ([change(target="the")], "no word can be followed"),
        ([change(), change()], "line 2: the same change as in line 1"),
        ([change(replacement="RED")], "follows no word"),
        (
            [
                change(questions=(("is it ?", "yes"),)),
                change(replacement="blue", questions=(("is it ?", "no"),)),
            ],
            "yes and",
        ),
    ],
)
def test_mistakes(
    rows: list[WordChange], word: str, room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stimuli = write(tmp_path / "s.jsonl", rows)
    flags = (
        "--checkpoint",
        room / "bert",
        "--stimuli",
        stimuli,
        "--output",
        tmp_path / "r",
        "--device",
        "cpu",
    )
    assert word in told(capsys, "sensitivity", *flags)
    assert "encoder" in told(capsys, "sensitivity", "--checkpoint", "hf:x", "--output", tmp_path / "r")


def test_the_embedded_stimuli_run(room: Path, tmp_path: Path) -> None:
    """Of all sentences, and of at most 30 of them, spread over all."""
    flags = ("--checkpoint", room / "typed.ckpt", "--batch-size", "512")
    whole, part = (run(tmp_path / name, *flags, "--limit", name) for name in ("0", "30"))
    place = {"checkpoint": "typed", "change": "exchanged", "layer": 2}
    assert [whole.n("distance", relation=r, **place) for r in ("verb", "head")] <= [260, 260]
    assert [cells.n("accuracy", checkpoint="typed") for cells in (whole, part)] == [130, 26]
    rows, some = (examples_of(tmp_path / name) for name in ("0", "30"))
    assert rows[0]["sentence"] == ALL[0].sentence
    assert {row["template"] for row in some} == {row["template"] for row in rows}
    same = {row["id"]: row["distance"] for row in rows if "distance" in row}
    assert {row["id"]: same[row["id"]] for row in some if "distance" in row} == {
        row["id"]: pytest.approx(row["distance"], abs=1e-6) for row in some if "distance" in row
    }
