"""A small valid file of every format that consistency, confusion and feature-bias read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.__main__ import main as evaluation_command
from tests.evaluation.scorers.labelled import labelled_rows, write_rows
from tests.malformed.documents import ABSENT, Command, Format

Read = tuple[Command, Callable[[Path, Path, Path], list[str]]]
MODEL = f"hf:{ABSENT}"
TASK = "comments_toxicity_uppercase"


def prompt_documents() -> list[Any]:
    return [
        {"prompt": {"text": f"The {what} in the café said that"}, "challenging": True}
        for what in ("pilot", "baker")
    ]


def specifications_document() -> dict[str, Any]:
    return {
        "self": {
            "template": "Here comes {}:",
            "separator": "\n",
            "blank": " ",
            "original": ["a café fight", "rude words"],
            "opposite": ["a café party", "kind words"],
            "nonsense": [["xq zz", "gh aa"], ["pp oo", "kk ii"]],
        }
    }


def piqa_documents() -> list[Any]:
    return [
        {"goal": f"Make {what} in a café", "sol1": f"boil the {what}", "sol2": "sing", "label": i % 2}
        for i, what in enumerate(("tea", "soup", "rice"))
    ]


def hellaswag_documents() -> list[Any]:
    return [
        {
            "ctx_a": f"A {who} sits in a café.",
            "ctx_b": "She",
            "endings": [f"{does} like a {who}." for does in ("drinks", "flies", "sings", "sleeps")],
            "label": i % 4,
        }
        for i, who in enumerate(("pilot", "baker", "queen", "child", "cook", "king"))
    ]


def choice_documents() -> list[Any]:
    row = {
        "id": "q1",
        "prompt": "Who runs the café?",
        "choices": ["the baker", "the pilot"],
        "label": 0,
        "benchmark": "mine",
        "probe": "",
        "donors": [1, 2],
        "target": "label",
    }
    more = ("sings", "sleeps", "cooks", "swims")
    return [row] + [
        row | {"id": f"q{i}", "prompt": f"Who {does}?", "choices": [f"no {does}", f"all {does}"], "label": 1}
        for i, does in enumerate(more, 2)
    ]


def task_document() -> dict[str, Any]:
    """Texts with capitals where h2 is 1."""
    document: dict[str, Any] = {"dataset": TASK}
    document["features"] = {
        "h1": {"key": "Good?", "words": ["no", "yes"], "zero": "it is bad", "one": "it is good"},
    }
    document["made_from"] = {"seed": 0}
    for part, cells in (("demos", ("1_1", "0_0")), ("testset", ("1_1", "0_0", "1_0", "0_1"))):
        for cell in cells:
            texts = [f"{'LOUD' if cell[2] == '1' else 'calm'} {part} {cell} {i}" for i in range(3)]
            document[f"{part}_{cell}"] = [
                {"id": str(i), "question": f"The café is {text}", "answer": cell[0], "split": cell}
                for i, text in enumerate(texts)
            ]
    return document


def wordings_document() -> dict[str, Any]:
    wording = {
        "key": "Café?",
        "words": ["no", "yes"],
        "instruction": "Write 1 for good.",
        "explanation": ["It is bad, so the answer is 0.", "It is good, so the answer is 1."],
    }
    return {TASK: {"h2": wording}}


def scorer_document() -> dict[str, Any]:
    """Two features a kind, six attributes."""
    shares = {"n": 9, "roc_auc": 0.9, "average_precision": 0.8, "f1": 0.7, "base_rate": 0.5}
    names = ("toxicity", "severe_toxicity", "sexually_explicit", "threat", "profanity", "identity_attack")
    return {
        "format": "interventune-scorer",
        "version": 1,
        "held_out": {name: dict(shares) for name in names},
        "trained": {"seed": 0},
        "weights": {name: {"intercept": -0.5, "coef": [0.1, 1.5, -0.25, 2.5]} for name in names},
        "features": [
            {"analyzer": "word", "ngrams": [1, 1], "terms": ["café", "stupid"], "idf": [1.5, 1.25]},
            {"analyzer": "char_wb", "ngrams": [2, 3], "terms": ["st", "fé"], "idf": [1.5, 1.25]},
        ],
    }


def labelled_documents() -> list[Any]:
    rows = labelled_rows(60)
    return [{"text": f"{row['text']} café", "toxicity": row["toxicity"]} for row in rows]


def _consistency(flag: str, *more: str, prefix: str = "") -> Read:
    def arguments(path: Path, folder: Path, output: Path) -> list[str]:
        flags = {
            "--adversarial": str(folder / "prompts.jsonl"),
            "--neutral": str(folder / "neutral.jsonl"),
            "--scorer": f"embedded:{folder / 'scorer.json'}",
            flag: f"{prefix}{path}",
        }
        given = (word for pair in flags.items() for word in pair)
        return [
            *("consistency", "--model", MODEL, "--method", "self", "--device", "cpu"),
            *("--nonsense-groups", "2", "--output", str(output), *given, *more),
        ]

    return evaluation_command, arguments


def _confusion(flag: str) -> Read:
    def arguments(path: Path, folder: Path, output: Path) -> list[str]:
        files = {"--input": str(folder / "unlabelled.jsonl")} if flag == "--labels" else {}
        given = (word for pair in {**files, flag: str(path)}.items() for word in pair)
        return [
            *("confusion", "--checkpoint", ABSENT, *given, "--output", str(output)),
            *("--device", "cpu", "--trials", "1", "--choices", "3", "--sampling", "random"),
            *("--probes", "no-question", "wrong-question", "no-right-answer"),
        ]

    return evaluation_command, arguments


def _feature_bias(flag: str) -> Read:
    def arguments(path: Path, folder: Path, output: Path) -> list[str]:
        files = {"--task": str(folder / "task.json"), flag: str(path)}
        given = (word for pair in files.items() for word in pair)
        return [
            *("feature-bias", "--model", MODEL, *given, "--output", str(output), "--device", "cpu"),
            *("--shots", "2", "--seeds", "1", "--intervention", "instruction", "--steer", "h2"),
        ]

    return evaluation_command, arguments


def _train_scorer(path: Path, folder: Path, output: Path) -> list[str]:
    return ["train-scorer", "--input", str(path), "--output", str(output)]


def _made(name: str, document: Any, read: Read, *, lines: bool = False, **about: Any) -> Format:
    document = json.loads(json.dumps(document))
    text = Format(name, "", read, lines=lines).dump(document)
    return Format(name, text, read, document, lines=lines, **about)


def _names(*fields: str) -> frozenset[str]:
    return frozenset(fields)


_SCORER = scorer_document()

JSON_FORMATS: tuple[Format, ...] = (
    _made(
        "prompts.jsonl",
        prompt_documents(),
        _consistency("--adversarial"),
        lines=True,
        optional=_names("challenging"),
    ),
    _made(
        "specifications.json",
        specifications_document(),
        _consistency("--specifications"),
        optional=_names("blank", "nonsense"),
    ),
    _made(
        "scorer.json",
        _SCORER,
        _consistency("--scorer", prefix="embedded:"),
        unused=_names("seed"),
        told=dict.fromkeys(_SCORER["weights"], ""),
        accepted=dict.fromkeys(
            ("intercept", "roc_auc", "average_precision", "f1", "base_rate", "0"), (int, float)
        ),
    ),
    _made("piqa.jsonl", piqa_documents(), _confusion("--input"), lines=True),
    _made("hellaswag.jsonl", hellaswag_documents(), _confusion("--input"), lines=True),
    _made(
        "choices.jsonl",
        choice_documents(),
        _confusion("--input"),
        lines=True,
        unused=_names("benchmark", "probe"),
        optional=_names("donors", "target"),
        accepted={"id": (str, int)},
    ),
    _made(
        "task.json",
        task_document(),
        _feature_bias("--task"),
        unused=_names("seed"),
        optional=_names("features", "h1", "made_from", "split"),
        accepted={"id": (str, int)},
        told={"answer": ""},
    ),
    _made(
        "wordings.json",
        wordings_document(),
        _feature_bias("--wording"),
        optional=_names("key", "words", "instruction", "explanation", TASK),
    ),
    _made(
        "labelled.jsonl",
        labelled_documents(),
        (evaluation_command, _train_scorer),
        lines=True,
        optional=_names("toxicity"),
        accepted={"toxicity": (int, bool, type(None))},
    ),
)

FORMATS: tuple[Format, ...] = (
    *JSON_FORMATS,
    Format("labels.lst", "0\n1\n0\n", _confusion("--labels")),
)


def write_companions(folder: Path) -> None:
    """Good files of every kind, for the commands that read several."""
    for form in FORMATS:
        (folder / form.name).write_text(form.text, encoding="utf-8")
    write_rows(folder / "neutral.jsonl", [{"text": "The garden is"}, {"text": "The road is"}])
    write_rows(
        folder / "unlabelled.jsonl",
        [{name: row[name] for name in ("goal", "sol1", "sol2")} for row in piqa_documents()],
    )
