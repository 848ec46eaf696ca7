"""Small valid files of every format (in given/), and the commands that read them.

Each file has a letter outside ASCII, so that a wrong encoding shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.__main__ import main as data_command
from evaluation.__main__ import main as evaluation_command

GIVEN = Path(__file__).resolve().parent / "given"
ABSENT = "no-such-checkpoint.ckpt"
"""Named where a command reads its file first: an error that names this one has accepted the file."""
MODEL = f"hf:{ABSENT}"


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Args:
        name: of the file.
        command: the line that reads it, with {file}, {dir} for the folder of all other files, and {out}.
        lenient: fields that may be absent, of several types or unread; `name.`: all that lies in them, too.
    """

    name: str
    command: str
    lenient: frozenset[str]

    @property
    def text(self) -> str:
        """A valid file."""
        return (GIVEN / self.name).read_text(encoding="utf-8")

    @property
    def document(self) -> Any:
        """What it holds, if it is JSON."""
        if self.name.endswith(".jsonl"):
            return [json.loads(line) for line in self.text.splitlines()]
        return json.loads(self.text) if self.name.endswith(".json") else None

    @property
    def main(self) -> Callable[[list[str]], int]:
        """The entry point that knows the command."""
        known = ("perturb", "lei", "unqover")
        return data_command if self.command.split()[0] in known else evaluation_command

    def arguments(self, file: Path, folder: Path, output: Path) -> list[str]:
        """The command's words for this file."""
        return [word.format(file=file, dir=folder, out=output) for word in self.command.split()]

    def dump(self, document: Any) -> str:
        """A changed document as the text of a file."""
        if self.name.endswith(".jsonl"):
            return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in document)
        return json.dumps(document, ensure_ascii=False)


PERTURB = "perturb --variant os --input {file} --output {out}"
OPTIONAL = "advice answer_type history rationale"
PREDICTED = "bias --predictions {file} --output {out}"
CONSISTENCY = (
    f"consistency-write --checkpoint {MODEL} --method self --device cpu --nonsense-groups 2 --output {{out}}"
    " --adversarial {dir}/prompts.jsonl --neutral {dir}/neutral.jsonl"
)
CONTINUATIONS = "consistency --continuations {file} --scorer hf:{dir}/none --device cpu --output {out}"
CONFUSION = (
    f"confusion --checkpoint {ABSENT} --output {{out}} --device cpu --trials 1 --choices 3 --sampling random"
    " --probes no_question wrong_question no_right_answer --input"
)
FEATURES = (
    f"feature-bias --checkpoint {MODEL} --output {{out}} --device cpu --shots 2 --seeds 1"
    " --intervention instruction --steer h2 --task"
)
LISTS = "--subjects {dir}/subjects --templates {dir}/templates --attributes {dir}/attributes --output {out}"
ASK = f"--checkpoint {ABSENT} --output {{out}}"

TABLE = (
    ("squad.json", PERTURB, "version title is_impossible id"),
    ("coqa.json", PERTURB, "version span_text id additional_answers."),
    ("hotpotqa.json", PERTURB, "level _id context supporting_facts"),
    ("rows.jsonl", PERTURB, f"{OPTIONAL} answers references dataset domain variant appended kept"),
    ("lei.json", PREDICTED, "version title intervention is_impossible tomax id"),
    ("unqover.json", PREDICTED, "pred"),
    ("pairs.jsonl", f"negation --pairs {{file}} {ASK}", "id dataset turn_id history edit"),
    ("condaqa.jsonl", f"negation --pairs {{file}} {ASK}", "QuestionID PassageID"),
    ("interventions.json", f"lei {LISTS} --interventions {{file}}", "rude wealth"),
    ("prompts.jsonl", f"{CONSISTENCY} --adversarial {{file}}", ""),
    ("specifications.json", f"{CONSISTENCY} --specifications {{file}}", "blank nonsense"),
    ("continuations.jsonl", CONTINUATIONS, "group"),
    ("piqa.jsonl", f"{CONFUSION} {{file}}", ""),
    ("hellaswag.jsonl", f"{CONFUSION} {{file}}", ""),
    ("choices.jsonl", f"{CONFUSION} {{file}}", "benchmark probe donors target id"),
    ("task.json", f"{FEATURES} {{file}}", "features. made_from. split id answer"),
    (
        "wordings.json",
        f"{FEATURES} {{dir}}/task.json --wording {{file}}",
        "* key words instruction explanation",
    ),
    ("labels.lst", f"{CONFUSION} {{dir}}/unlabelled.jsonl+{{file}}", ""),
    ("subjects", f"unqover {LISTS} --subjects {{file}}", ""),
    ("templates", f"unqover {LISTS} --templates {{file}}", ""),
    ("attributes", f"unqover {LISTS} --attributes {{file}}", ""),
    ("sentences.tsv", f"lei {LISTS} --interventions {{dir}}/interventions.json --specified {{file}}", ""),
)
FORMATS = tuple(Format(name, command, frozenset(lenient.split())) for name, command, lenient in TABLE)
