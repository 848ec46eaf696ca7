"""The numbers of every protocol, of two small models of random weights each."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from tokenizers.pre_tokenizers import Whitespace

from evaluation.reproduce.tiny_classifier import save_classifier
from tests.evaluation.protocol_cases import save_causal
from tests.golden.commands import Room

SHORT = "--data.encoding={order: auto, max_length: 160}"
VARIANTS = ("os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug")


def span_models(room: Room) -> list[str]:
    """Two models with a span head, NAME=PATH."""
    data = ["--data.train_qa=stories:train", "--data.limit_train_qa=16", "--data.val_qa={}", SHORT]
    monitored = ["--checkpoint.monitor=null"]
    return [
        f"{name}={room.checkpoint('squad', 'roberta', *data, *monitored, run=f'span_{name}', seed=seed)}"
        for name, seed in (("one", 1), ("two", 2))
    ]


def typed_models(room: Room) -> list[str]:
    """Two models that say yes, no and unknown: rationale heads and XLNet's."""
    data = ["--data.limit_train_qa=16", "--data.val_qa={}", "--data.interventions.shift=[]"]
    return [
        f"{name}={room.checkpoint('stories_ot', name, *data, run=f'typed_{name}', seed=seed)}"
        for name, seed in (("bert", 7), ("xlnet", 6))
    ]


def choice_models(room: Room, train: str = "stories:choices_train", kind: str = "choice") -> list[str]:
    """Two models of multiple choice."""
    data = [f"--data.train_choices=[{train}]", "--data.limit_train=16", "--data.val_choices={}"]
    monitored = ["--checkpoint.monitor=null"]
    return [
        f"{name}={room.checkpoint('multiple_choice', name, *data, *monitored, run=f'{kind}_{name}', seed=5)}"
        for name in ("roberta", "bert")
    ]


def causal_models(room: Room) -> list[str]:
    """Two language models that know the words of the labelled texts and of the prompts."""
    words = "the a cat dog sat ran on under mat red blue who where is not . ? 0 1 good bad yes no : ,"
    words += " text label review word today it in or answer question"
    found = []
    for name, seed in (("one", 7), ("two", 8)):
        folder = room.root / "causal" / name
        with room.once(f"causal_{name}") as wanted:
            if wanted:
                stories = json.loads((room.data / "coqa.json").read_text())["data"]
                rows = map(json.loads, (room.data / "labelled.jsonl").read_text().splitlines())
                texts = [words, *(row["text"] for row in rows), *(story["story"] for story in stories)]
                pieces = {p for text in texts for p, _ in Whitespace().pre_tokenize_str(text.lower())}
                save_causal(folder, sorted(pieces), seed=seed, positions=768, spread=0.6)
        found.append(f"{name}=hf:{folder}")
    return found


def bias(room: Room) -> dict[str, list[str]]:
    data = ["--data", f"few={room.data / 'few_lei.json'}"]
    return {"report": ["--checkpoint", *span_models(room), *data, "--planted-seed", "0"]}


def faithfulness(room: Room) -> dict[str, list[str]]:
    data = ["--data", "stories:mixed_dev", "--limit", "24", "--variants", *VARIANTS]
    coqa = ["--data", str(room.data / "coqa.json")]
    models = ["--checkpoint", *typed_models(room)]
    return {"stories": [*models, *data], "coqa": [*models, *coqa]}


def shift(room: Room) -> dict[str, list[str]]:
    data = ["--data", "stories:conversation_dev", "--limit", "8", "--variants", *VARIANTS[1:]]
    spans = ["--checkpoint", *span_models(room), *data, "--layers", "all"]
    return {"spans": spans, "typed": ["--checkpoint", *typed_models(room), *data]}


def consistency_write(room: Room) -> dict[str, list[str]]:
    given = ["--beams", "2", "--new-tokens", "4", "--nonsense-groups", "2"]
    for name in ("adversarial", "neutral"):
        given += [f"--{name}", str(room.data / f"{name}.jsonl")]
    text = ["--perplexity", str(room.data / "labelled.jsonl")]
    return {
        "report": ["--checkpoint", *causal_models(room), "--method", "self", "instructive", *given, *text]
    }


def consistency(room: Room) -> dict[str, list[str]]:
    classifier, written = room.data / "classifier", room.root / "reports" / "written"
    with room.once("written") as wanted:
        if wanted:
            save_classifier(output=classifier)
            flags = consistency_write(room)["report"]
            room.evaluate("consistency-write", written.name, *flags)
    return {"report": ["--continuations", str(written), "--scorer", f"hf:{classifier}"]}


def confusion(room: Room) -> dict[str, list[str]]:
    data = ["--input", "stories:choices_dev", "--limit", "12", "--trials", "2", "--choices", "3", "5"]
    heads = choice_models(room)
    encoder = heads[0].partition("=")[2]
    return {
        "heads": ["--checkpoint", *heads, *data],
        "causal": ["--checkpoint", *causal_models(room), *data, "--encoder", encoder],
        "drawn": ["--checkpoint", *heads, *data, "--instances", "4", "--sampling", "random"],
    }


def feature_bias(room: Room) -> dict[str, list[str]]:
    task, rows = room.data / "task.json", room.data / "task_rows.jsonl"
    with room.once("task") as wanted:
        if wanted:
            flags = ("--input", "labelled.jsonl", "--min-demos", 6, "--recipe", "tasks.yaml")
            room.write("feature-bias", *flags, "--task", "task", "--output", ".")
            outputs = ("--output", rows.name, "--dev-output", "task_dev.jsonl")
            room.write("feature-bias-rows", "--task", "task.json", *outputs)
    models = ["--checkpoint", *causal_models(room), "--task", f"task={task}"]
    tuned = choice_models(room, str(rows), "classifier")
    some = ["--shots", "2", "--seeds", "2", "--limit", "4"]
    steered = ["--intervention", "verbalizer", "instruction", "--steer", "h2"]
    return {
        "context": [*models, *some, *steered],
        "tuned": ["--checkpoint", *tuned, "--task", f"task={task}", *some],
    }


PROTOCOLS: dict[str, Callable[[Room], dict[str, list[str]]]] = {
    "bias": bias,
    "faithfulness": faithfulness,
    "shift": shift,
    "consistency-write": consistency_write,
    "consistency": consistency,
    "confusion": confusion,
    "feature-bias": feature_bias,
}
"""Name on the command line, and the flags of each of its reports."""


def protocol(name: str, room: Room) -> dict[str, Any]:
    """The long table of every report: `DIMENSION=PLACE ... measure=NAME` to value, interval, and n."""
    found: dict[str, Any] = {}
    for run, flags in PROTOCOLS[name](room).items():
        folder = room.evaluate(name, f"{name}_{run}", *flags)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        ends = ("value", "low", "high", "n")
        found[run] = {
            " ".join(f"{key}={row[key]}" for key in (*report["by"], "measure") if row[key] != ""): [
                row[end] for end in ends
            ]
            for row in report["results"]
        }
    return found


GOLDENS: dict[str, Callable[[Room], dict[str, Any]]] = {
    f"protocol_{name.replace('-', '_')}": functools.partial(protocol, name) for name in PROTOCOLS
}
