"""What readers, encodings and the commands of data_modules make: windows, groups, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.batching.choice_set import ChoiceEncoding, encode_choices
from data_modules.batching.group_set import encode_groups
from data_modules.encoding.questions import encode_questions
from data_modules.encoding.windows import Encoding, encode_texts
from data_modules.schema import query_text
from data_modules.sources import read_choices, read_groups, read_questions
from tests.data_modules.fixtures.small_tokenizers import tokenizer
from tests.data_modules.fixtures.tiny_lists import ATTRIBUTES, write_lists
from tests.golden.commands import Room, digest

ARCHITECTURES = {"wordpiece": "bert", "bytes": "roberta", "xlnet_pieces": "xlnet", "words_bert": "bert"}
"""Tokenizers of tests/data_modules/fixtures, and whose rows are encoded with them."""
LENGTHS = {"words_bert": (72, 32)}
"""Tokens in a row and doc stride: stories take several windows; LETTERS where most tokens are letters."""
LETTERS = (256, 128)
QUESTIONS = 50
SHOWN = 2
"""Questions that are kept in full, so that a difference can be read."""
VARIANTS = ("os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug")
LISTS = ("--subjects", "subjects", "--templates", "templates", "--attributes", "attributes")
SPECIFIED = ("--specified", "specified.tsv")
ADVISED = (*LISTS, "--interventions", "interventions.json")


def lists(room: Room) -> Path:
    """The folder of the invented word lists."""
    folder = room.root / "lists"
    with room.once("lists") as wanted:
        if wanted:
            folder.mkdir()
            write_lists(folder)
            names = [line.split("|")[1].strip() for line in ATTRIBUTES.splitlines()[:4]]
            (folder / "specified.tsv").write_text("".join(f"{n}\tEverybody saw the [subj].\n" for n in names))
    return folder


def read_windows(source: str, lengths: tuple[int, int] | None, kind: str) -> list[Any]:
    """What the windows of the first questions hold, one entry a question."""
    max_length, doc_stride = lengths or LENGTHS.get(kind, LETTERS)
    how = Encoding(order="auto", max_length=max_length, doc_stride=doc_stride)
    examples = list(islice(read_questions(source), QUESTIONS))
    found: list[list[Any]] = []
    table = encode_questions(examples, tokenizer(kind), how.resolved(ARCHITECTURES[kind]))
    for row in table.to_pylist():
        if row["window"] == 0:
            found.append([])
        window = {"ids": row["input_ids"], "types": row["token_type_ids"], "cls": row["cls"]}
        window |= {"offsets": np.reshape(row["offsets"], (-1, 2)).tolist()}
        window |= {name: row[name] for name in ("start", "end", "number", "option")}
        window |= {"type": row["answer_type"], "rationale": np.flatnonzero(row["rationale"]).tolist()}
        found[-1].append(window | {"max_context": np.flatnonzero(row["max_context"]).tolist()})
    return [
        {"id": example.id, "gold": list(example.gold), "kind": example.answer_type, "windows": windows}
        for example, windows in zip(examples, found, strict=True)
    ]


def group_windows(source: str, kind: str) -> list[Any]:
    """The four rows of the first groups, and where the two subjects stand in them."""
    how = Encoding(order="auto", max_length=512).resolved(ARCHITECTURES[kind])
    groups = list(islice(read_groups(source), QUESTIONS))
    texts = ((v.context, query_text(v.question, v.advice), "") for g in groups for v in g.variants)
    rows = [
        {"ids": row.input_ids_T.tolist(), "types": row.token_type_ids_T.tolist(), "cls": int(row.cls)}
        | {"offsets": row.offsets_TE.tolist()}
        for row in encode_texts(texts, tokenizer(kind), how)
    ]
    encoded = encode_groups(groups, tokenizer(kind), how)
    return [
        {"key": group.key, "class": group.advice_class, "rows": rows[4 * g : 4 * g + 4]}
        | {"candidates": [list(map(list, row.spans)) for row in encoded[4 * g : 4 * g + 4]]}
        for g, group in enumerate(groups)
    ]


def choice_windows(source: str, kind: str) -> list[Any]:
    """The rows of the first multiple-choice questions."""
    examples = read_choices(source)[:QUESTIONS]
    encoded = encode_choices(examples, tokenizer(kind), ChoiceEncoding(max_length=96), ARCHITECTURES[kind])
    found = []
    for example, choices in zip(examples, encoded, strict=True):
        rows = [{"ids": r.input_ids_T.tolist(), "types": r.token_type_ids_T.tolist()} for r in choices]
        found.append({"id": example.id, "label": example.label, "benchmark": example.benchmark, "rows": rows})
    return found


def digests(items: Sequence[Any]) -> dict[str, Any]:
    """How many there are and what each one holds, without a word of it."""
    return {"n": len(items), "each": [digest(item)[:16] for item in items]}


def windows(make: Callable[[str], list[Any]], *, shown: int = SHOWN) -> dict[str, Any]:
    """Features of a source with each tokenizer."""
    found: dict[str, Any] = {}
    for kind in ARCHITECTURES:
        items = make(kind)
        found[kind] = digests(items)
        if kind == "words_bert":
            found["shown"] = items[:shown]
    return found


def questions(name: str, room: Room) -> dict[str, Any]:
    return windows(partial(read_windows, str(room.data / name), None))


def rows(room: Room) -> dict[str, Any]:
    """Rows that `perturb` writes, read back."""
    folder = room.root / "rows"
    folder.mkdir()
    found = {}
    for variant in ("os", "ts_r", "os_r_aug"):
        flags = ("--input", "stories:conversation_dev", "--variant", variant)
        room.write("perturb", *flags, "--output", f"{variant}.jsonl", folder=folder)
        found[variant] = windows(partial(read_windows, str(folder / f"{variant}.jsonl"), None), shown=1)
    return found


def lei_groups(room: Room) -> dict[str, Any]:
    return windows(partial(group_windows, str(room.data / "lei.json")))


def unqover_groups(room: Room) -> dict[str, Any]:
    room.write("unqover", *LISTS, "--output", "windows_source.json", folder=lists(room))
    return windows(partial(group_windows, str(room.root / "lists/windows_source.json")))


def choices(room: Room) -> dict[str, Any]:
    names = ("piqa", "anli", "socialiqa", "hellaswag")
    sources = {name: f"{room.data / name}.jsonl+{room.data / name}.lst" for name in names}
    sources["stories"] = "stories:choices_dev"
    return {name: windows(partial(choice_windows, source), shown=1) for name, source in sources.items()}


def members(path: Path) -> list[str]:
    """The groups of a file, in the order in which they are read."""
    return [group.key for group in read_groups(path)]


def lei_sets(room: Room) -> dict[str, Any]:
    """Members, order and bytes of what `lei` and `unqover` write."""
    folder, found = lists(room), {}
    commands: dict[str, tuple[str | int, ...]] = {
        "unqover.json": ("unqover", *LISTS),
        "all.json": ("lei", *ADVISED),
        "plain.json": ("lei", *LISTS),
        "sample.json": ("lei", *ADVISED, "--per-class", 7),
        "seeded.json": ("lei", *ADVISED, "--per-class", 7, "--seed", 3),
        "train.json": ("lei", *ADVISED, "--split", "train"),
        "test.json": ("lei", *ADVISED, "--split", "test"),
        "like.json": ("lei", *ADVISED, "--like", "sample.json"),
        "disjoint.json": ("lei", *ADVISED, "--disjoint-from", "one.json", "--per-class", 5),
        "specified.json": ("lei", *ADVISED, *SPECIFIED, "--per-class", 2),
    }
    room.write("lei", *LISTS, "--per-class", 1, "--output", "one.json", folder=folder)
    for name, command in commands.items():
        room.write(*command, "--output", name, folder=folder)
        keys = members(folder / name)
        found[name] = {"n": len(keys), "order": digest(keys), "bytes": digest((folder / name).read_bytes())}
        if len(keys) <= 30:
            found[name]["members"] = keys
    return found


def perturbed(room: Room) -> dict[str, Any]:
    """Bytes and summaries of every variant of every data set."""
    sources = {"coqa": "coqa.json", "hotpotqa": "hotpotqa.json", "squad": "squad.json"}
    found = {}
    for dataset, source in (sources | {"stories": "stories:mixed_dev"}).items():
        for variant in VARIANTS:
            output = f"{dataset}_{variant}.jsonl"
            flags = ("--input", source, "--variant", variant, "--output", output)
            room.write("perturb", *flags)
            summary = json.loads((room.data / output.replace(".jsonl", ".summary.json")).read_text())
            counts = {key: summary[key] for key in ("kept", "rejected")}
            found[output] = {**counts, "bytes": digest((room.data / output).read_bytes())}
    return found


def written(room: Room) -> dict[str, Any]:
    """Bytes of what the other commands write."""
    labels = ("--input", "labelled.jsonl", "--min-demos", 2, "--recipe", "tasks.yaml")
    room.write("feature-bias", *labels, "--task", "uppercase", "pattern", "--output", ".")
    rows = ("--output", "rows.jsonl", "--dev-output", "dev_rows.jsonl")
    room.write("feature-bias-rows", "--task", "uppercase.json", *rows)
    names = ("uppercase.json", "pattern.json", "rows.jsonl", "dev_rows.jsonl")
    return {name: digest((room.data / name).read_bytes()) for name in names}


def shared_windows(shared: Path, room: Room) -> dict[str, Any]:
    """Counts and digests of public data; nothing of the texts is kept."""
    data = shared / "data"
    found: dict[str, Any] = {}
    sources = {"squad": "squad/dev-24-articles.json", "hotpotqa": "hotpotqa/distractor-100.json"}
    sources |= {f"coqa_{part}": f"coqa/{part}-1-story.json" for part in ("train", "dev")}
    for name, source in sources.items():
        found[name] = {
            kind: digests(read_windows(str(data / source), (512, 128), kind))
            for kind in ("wordpiece", "bytes", "xlnet_pieces")
        }
    lei = data / "lei/underspecified/religion/addedbias_noniid_dev_squad.json"
    found["lei"] = {kind: digests(group_windows(str(lei), kind)) for kind in ("wordpiece", "bytes")}
    piqa = f"{data / 'piqa/valid.jsonl'}+{data / 'piqa/valid-labels.lst'}"
    found["piqa"] = {kind: digests(choice_windows(piqa, kind)) for kind in ("wordpiece", "bytes")}
    words = data / "lei/word_lists"
    flags = ("--subjects", str(words / "nouns/subjects/religion"), "--per-class", 20)
    flags += ("--templates", str(words / "slots/religion_noact"))
    flags += ("--attributes", str(words / "activities/biased_religion"))
    advice = str(data / "lei/interventions/religion_interventions.json")
    room.write("lei", *flags, "--interventions", advice, "--output", "shared_lei.json")
    keys = members(room.data / "shared_lei.json")
    content = (room.data / "shared_lei.json").read_bytes()
    found["lei_set"] = {"n": len(keys), "order": digest(keys), "bytes": digest(content)}
    return found


def goldens(shared: Path) -> dict[str, Callable[[Room], dict[str, Any]]]:
    """Name to a function that makes it."""
    readers = {
        f"windows_{name}": partial(questions, f"{name}.json") for name in ("squad", "coqa", "hotpotqa")
    }
    readers |= {"windows_rows": rows, "windows_lei": lei_groups, "windows_unqover": unqover_groups}
    readers |= {"windows_choices": choices, "lei_sets": lei_sets, "perturbed": perturbed, "written": written}
    return {**readers, "shared_windows": partial(shared_windows, shared)}
