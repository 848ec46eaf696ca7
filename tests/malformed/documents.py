"""A small valid file of every format that the commands read, and the command that reads it.

Each text has a letter outside ASCII, so that a wrong encoding can be told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command
from tests.data_modules import tiny_lists
from tests.evaluation.protocols.bias.predictions import lei, rows, unqover

Command = Callable[[list[str]], int]
STORY = "A Tolin baker met a Kessar pilot in the café. The pilot wore a red hat. They drank tea."
ABSENT = "no-such-checkpoint.ckpt"
"""Named where a command reads its file first: an error that names this one has accepted the file."""


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Args:
        name: of the format.
        text: a valid file.
        read: the command, and its arguments by the file, a folder with all word lists, and the output.
        document: what `text` holds, if it is JSON.
        unused: fields, by the end of their path, that no reader looks at.
        optional: fields that may be absent, but are looked at.
        accepted: by field, other JSON types than the valid file's.
        told: by field, what the message says in place of its name.
        lines: a record a line.
    """

    name: str
    text: str
    read: tuple[Command, Callable[[Path, Path, Path], list[str]]]
    document: Any = None
    unused: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    accepted: dict[str, tuple[type, ...]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    lines: bool = False

    def dump(self, document: Any) -> str:
        """A changed document as the text of a file."""
        if self.lines:
            return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in document)
        return json.dumps(document, ensure_ascii=False)


def _perturb(dataset: str) -> tuple[Command, Callable[[Path, Path, Path], list[str]]]:
    return data_command, lambda path, folder, output: [
        *("perturb", "--dataset", dataset, "--input", str(path)),
        *("--variant", "os", "--output", str(output)),
    ]


def _evaluate(
    protocol: str, flag: str, *more: str
) -> tuple[Command, Callable[[Path, Path, Path], list[str]]]:
    return evaluation_command, lambda path, folder, output: [
        *(protocol, flag, str(path), "--output", str(output), *more)
    ]


def list_command(command: str, **changed: str) -> tuple[Command, Callable[[Path, Path, Path], list[str]]]:
    """A command on word lists, of which the flags in `changed` take the malformed file."""

    def arguments(path: Path, folder: Path, output: Path) -> list[str]:
        files = {name: str(folder / name) for name in ("subjects", "templates", "attributes")}
        if command == "lei":
            files["interventions"] = str(folder / "interventions.json")
        files |= {name.replace("_", "-"): str(path) for name in changed}
        return [command, *(p for name, f in files.items() for p in (f"--{name}", f)), "--output", str(output)]

    return data_command, arguments


def squad_document() -> Any:
    start = STORY.index("red")
    answer = {"text": "red", "answer_start": start}
    qas = [
        {"id": "q1", "question": "Which hat?", "answers": [answer], "is_impossible": False},
        {"id": "q2", "question": "Which shoes?", "answers": [], "is_impossible": True},
    ]
    return {
        "version": "v2",
        "data": [{"title": "t", "paragraphs": [{"context": STORY, "qas": qas}]}],
    }


def coqa_document() -> Any:
    said = "The pilot wore a red hat."
    start = STORY.index(said)
    answers = [
        {
            "input_text": "red",
            "span_start": start,
            "span_end": start + len(said),
            "span_text": said,
            "turn_id": 1,
        },
        {"input_text": "yes", "span_start": 0, "span_end": 45, "span_text": STORY[:45], "turn_id": 2},
    ]
    questions = [
        {"input_text": "Which hat?", "turn_id": 1},
        {"input_text": "Was there a baker?", "turn_id": 2},
    ]
    story = {
        "id": "s1",
        "source": "wikipedia",
        "filename": "f",
        "story": STORY,
        "questions": questions,
        "answers": answers,
        "additional_answers": {"0": [dict(answers[0], input_text="a red one"), dict(answers[1])]},
        "name": "n",
    }
    return {"version": "1.0", "data": [story]}


def hotpotqa_document() -> Any:
    return [
        {
            "_id": "h1",
            "question": "Which hat did the pilot of the café wear?",
            "answer": "red",
            "type": "bridge",
            "level": "easy",
            "supporting_facts": [["Hats", 0]],
            "context": [["Hats", ["The pilot wore a red hat.", " It was old."]], ["Tea", ["Tea is hot."]]],
        }
    ]


def row_documents() -> list[Any]:
    """Rows of `perturb`."""
    start = STORY.index("red")
    said = STORY.index("The pilot")
    row = {
        "id": "s1 1",
        "dataset": "coqa",
        "domain": "wikipedia",
        "context": STORY,
        "question": "Which hat?",
        "advice": "",
        "history": [["Who met?", "a baker"]],
        "answer_type": "span",
        "answers": ["red"],
        "answer_spans": [{"start": start, "end": start + 3, "text": "red"}],
        "references": ["red"],
        "rationale": [{"start": said, "end": said + 25, "text": STORY[said : said + 25]}],
        "variant": "os",
        "appended": "",
        "kept": [[0, 20], [25, 40]],
    }
    return [row, row | {"id": "s1 2", "history": []}]


def pair_documents() -> list[Any]:
    pair = {
        "id": "p1",
        "dataset": "coqa",
        "turn_id": 3,
        "history": [["Who met?", "a baker"]],
        "question": "Was the hat red?",
        "story_org": STORY,
        "story_mod": STORY.replace("wore a", "wore no"),
        "answer_org": "yes",
        "answer_mod": "no",
        "edit": "scope",
    }
    return [pair, pair | {"id": "p2"}]


def condaqa_documents() -> list[Any]:
    original = {
        "QuestionID": "q0",
        "PassageID": 7,
        "PassageEditID": 0,
        "sentence1": STORY,
        "sentence2": "Was the hat red?",
        "label": "YES",
        "original sentence": STORY,
    }
    edit = original | {"PassageEditID": 2, "sentence1": STORY.replace("wore a", "wore no"), "label": "NO"}
    return [original, edit]


def stimuli_document() -> list[Any]:
    row = {
        "schema": 1,
        "col1": "red",
        "col2": "blue",
        "story": STORY,
        "answer": "yes",
        "org": "Was the hat red?",
        "mod": "Was there a red hat?",
        "new": "Was the a red hat?",
    }
    return [row, row | {"org": "Was the hat blue?", "answer": "no"}]


def predictions_document(form: str) -> Any:
    data = rows(("ethical",))[:2]
    document = lei(data) if form == "lei" else unqover(data)
    text = json.dumps(document).replace("a visit", "a café visit")
    return json.loads(text)


def _json(name: str, document: Any, read: Any, *, lines: bool = False, **about: Any) -> Format:
    document = json.loads(json.dumps(document))  # no part stands in two places
    form = Format(name, "", read, document, lines=lines, **about)
    return replace(form, text=form.dump(document))


def _names(*fields: str) -> frozenset[str]:
    return frozenset(fields)


_ASK = ("--checkpoint", ABSENT)

JSON_FORMATS: tuple[Format, ...] = (
    _json(
        "squad.json",
        squad_document(),
        _perturb("squad"),
        unused=_names("version", "title"),
        optional=_names("is_impossible"),
        accepted={"id": (str, int)},
    ),
    _json(
        "coqa.json",
        coqa_document(),
        _perturb("coqa"),
        unused=_names(
            *("version", "filename", "name", "span_text"),
            *("additional_answers.0.0.span_start", "additional_answers.0.0.span_end"),
        ),
        optional=_names("additional_answers", "0"),
        accepted={"id": (str, int)},
    ),
    _json(
        "hotpotqa.json",
        hotpotqa_document(),
        _perturb("hotpotqa"),
        unused=_names("level"),
        accepted={"_id": (str, int), "context": (list, dict), "supporting_facts": (list, dict)},
        told={"_id": "id"},
    ),
    _json(
        "rows.jsonl",
        row_documents(),
        _perturb("coqa"),
        lines=True,
        unused=_names("answers"),
    ),
    _json(
        "lei.json",
        predictions_document("lei"),
        _evaluate("bias", "--predictions"),
        unused=_names("version", "title"),
        optional=_names("is_impossible", "tomax"),
        accepted={"id": (str, int)},
    ),
    _json(
        "unqover.json",
        predictions_document("unqover"),
        _evaluate("bias", "--predictions"),
        unused=_names("pred"),
    ),
    _json(
        "pairs.jsonl",
        pair_documents(),
        _evaluate("negation", "--pairs", *_ASK),
        lines=True,
        optional=_names("dataset", "turn_id", "history", "edit"),
        accepted={"id": (str, int)} | {n: (type(None),) for n in ("dataset", "turn_id", "history", "edit")},
    ),
    _json(
        "condaqa.jsonl",
        condaqa_documents(),
        (
            data_command,
            lambda path, folder, output: ["condaqa", "--input", str(path), "--output", str(output)],
        ),
        lines=True,
        unused=_names("original sentence"),
        accepted={"QuestionID": (str, int), "PassageID": (str, int)},
    ),
    _json(
        "stimuli.json",
        stimuli_document(),
        _evaluate("predicate-argument", "--stimuli", *_ASK),
    ),
    _json(
        "interventions.json",
        json.loads(json.dumps(tiny_lists.INTERVENTIONS).replace("Tea was", "Café was")),
        list_command("lei", interventions=""),
        optional=_names("rude", "wealth"),
        accepted={"0": (type(None),)},
    ),
)

_SENTENCES = "".join(
    f"{name}\t[subj] was in the café.\n"
    for name in ("were loud", "were grumpy", "owned a empty shed", "owned no Shed")
)

LIST_FORMATS: tuple[Format, ...] = (
    Format("subjects", tiny_lists.SUBJECTS + "[subj] Café\n", list_command("unqover", subjects="")),
    Format(
        "templates",
        tiny_lists.TEMPLATES.replace("A [subj1]", "In a café a [subj1]"),
        list_command("unqover", templates=""),
    ),
    Format(
        "attributes",
        tiny_lists.ATTRIBUTES.replace("owned a mill", "owned a café"),
        list_command("unqover", attributes=""),
    ),
    Format("sentences.tsv", _SENTENCES, list_command("lei", specified="")),
    Format("filler", "[text] They met in a café.\n", list_command("unqover", filler="")),
)

FORMATS: Sequence[Format] = (*JSON_FORMATS, *LIST_FORMATS)
