"""What readers, encodings and the commands of data_modules make: windows, groups, files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.data_modules.fixtures.tiny_lists import ATTRIBUTES, write_lists
from tests.golden import adapter
from tests.golden.adapter import ARCHITECTURES, digest, digests
from tests.golden.commands import Room

SHOWN = 2
"""Questions that are kept in full, so that a difference can be read."""
VARIANTS = ("os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug")
LISTS = ("--subjects", "subjects", "--templates", "templates", "--attributes", "attributes")
SPECIFIED = ("--specified", "specified.tsv", "--qa-output", "specified_qa.json")
KITCHEN = ("--feature", "lexicon", "--feature-args", "word=kitchen")
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


def windows(make: Callable[[str, str], list[Any]], source: str, *, shown: int = SHOWN) -> dict[str, Any]:
    """Features of a source with each tokenizer."""
    found: dict[str, Any] = {}
    for kind in ARCHITECTURES:
        items = make(source, kind)
        found[kind] = digests(items)
        if shown and kind == "words_bert":
            found["shown"] = items[:shown]
    return found


def questions(name: str, room: Room) -> dict[str, Any]:
    return windows(adapter.question_windows, str(room.data / name))


def rows(room: Room) -> dict[str, Any]:
    """Rows that `perturb` writes, read back."""
    folder = room.root / "rows"
    folder.mkdir()
    found = {}
    for variant in ("os", "ts_r", "os_r_aug"):
        flags = ("--dataset", "stories", "--input", "stories:conversation_dev", "--variant", variant)
        room.write("perturb", *flags, "--output", f"{variant}.jsonl", folder=folder)
        found[variant] = windows(adapter.question_windows, str(folder / f"{variant}.jsonl"), shown=1)
    return found


def lei_groups(room: Room) -> dict[str, Any]:
    return windows(adapter.group_windows, str(room.data / "lei.json"))


def unqover_groups(room: Room) -> dict[str, Any]:
    room.write("unqover", *LISTS, "--output", "windows_source.json", folder=lists(room))
    return windows(adapter.group_windows, str(room.root / "lists/windows_source.json"))


def choices(room: Room) -> dict[str, Any]:
    found = {}
    for name in ("piqa", "anli", "socialiqa", "hellaswag"):
        source = f"{room.data / name}.jsonl+{room.data / name}.lst"
        found[name] = windows(adapter.choice_windows, source, shown=1)
    return found | {"stories": windows(adapter.choice_windows, "stories:choices_dev", shown=1)}


def lei_sets(room: Room) -> dict[str, Any]:
    """Members, order and bytes of what `lei` and `unqover` write."""
    folder, found = lists(room), {}
    commands: dict[str, tuple[str | int, ...]] = {
        "unqover.json": ("unqover", *LISTS),
        "all.json": ("lei", *ADVISED),
        "plain.json": ("lei", *LISTS, "--no-advice"),
        "sample.json": ("lei", *ADVISED, "--per-class", 7),
        "seeded.json": ("lei", *ADVISED, "--per-class", 7, "--seed", 3),
        "train.json": ("lei", *ADVISED, "--split", "train", "--split-sizes", 2, 0, 2),
        "test.json": ("lei", *ADVISED, "--split", "test", "--split-sizes", 2, 0, 2),
        "held_out.json": ("lei", *ADVISED, "--like", "sample.json", "--exclude", "sample.json"),
        "disjoint.json": ("lei", *ADVISED, "--disjoint-from", "one.json", "--per-class", 5),
        "specified.json": ("lei", *ADVISED, *SPECIFIED, "--per-class", 2),
    }
    one = ("lei", *ADVISED, "--classes", "ethical", "--per-class", 1, "--output", "one.json")
    room.write(*one, folder=folder)
    for name, command in commands.items():
        room.write(*command, "--output", name, folder=folder)
        keys = adapter.members(folder / name)
        found[name] = {"n": len(keys), "order": digest(keys), "bytes": digest((folder / name).read_bytes())}
        if len(keys) <= 30:
            found[name]["members"] = keys
    found["specified_qa.json"] = {"bytes": digest((folder / "specified_qa.json").read_bytes())}
    return found


def perturbed(room: Room) -> dict[str, Any]:
    """Bytes and summaries of every variant of every data set."""
    sources = {"coqa": "coqa.json", "hotpotqa": "hotpotqa.json", "squad": "squad.json"}
    found = {}
    for dataset, source in (sources | {"stories": "stories:mixed_dev"}).items():
        for variant in VARIANTS:
            output = f"{dataset}_{variant}.jsonl"
            flags = ("--dataset", dataset, "--input", source, "--variant", variant, "--output", output)
            room.write("perturb", *flags)
            summary = json.loads((room.data / output.replace(".jsonl", ".summary.json")).read_text())
            counts = {key: summary[key] for key in ("kept", "rejected", "generation_failures")}
            found[output] = {**counts, "bytes": digest((room.data / output).read_bytes())}
    return found


def written(room: Room) -> dict[str, Any]:
    """Bytes of what the other commands write."""
    labels = ("--input", "labelled.jsonl", "--min-demos", 2)
    commands: dict[str, tuple[str | int, ...]] = {
        "pairs_of_condaqa.jsonl": ("condaqa", "--input", "condaqa.jsonl"),
        "uppercase.json": ("feature-bias", *labels, "--feature", "uppercase"),
        "lexicon.json": ("feature-bias", *labels, *KITCHEN),
        "rows.jsonl": ("feature-bias-rows", "--task", "uppercase.json", "--dev-output", "dev_rows.jsonl"),
        "stories_qa.json": ("stories", "--split", "dev", "--kind", "qa"),
        "stories_groups.json": ("stories", "--split", "unseen", "--kind", "groups"),
    }
    for name, command in commands.items():
        room.write(*command, "--output", name)
    return {name: digest((room.data / name).read_bytes()) for name in (*commands, "dev_rows.jsonl")}


def shared_windows(shared: Path, room: Room) -> dict[str, Any]:
    """Counts and digests of public data; nothing of the texts is kept."""
    data = shared / "data"
    found: dict[str, Any] = {}
    sources = {"squad": "squad/dev-24-articles.json", "hotpotqa": "hotpotqa/distractor-100.json"}
    sources |= {f"coqa_{part}": f"coqa/{part}-1-story.json" for part in ("train", "dev")}
    for name, source in sources.items():
        found[name] = {
            kind: digests(adapter.question_windows(str(data / source), kind, (512, 128)))
            for kind in ("wordpiece", "bytes", "xlnet_pieces")
        }
    lei = data / "lei/underspecified/religion/addedbias_noniid_dev_squad.json"
    found["lei"] = {kind: digests(adapter.group_windows(str(lei), kind)) for kind in ("wordpiece", "bytes")}
    piqa = f"{data / 'piqa/valid.jsonl'}+{data / 'piqa/valid-labels.lst'}"
    found["piqa"] = {kind: digests(adapter.choice_windows(piqa, kind)) for kind in ("wordpiece", "bytes")}
    room.write("condaqa", "--input", str(data / "condaqa/dev.jsonl"), "--output", "shared_pairs.jsonl")
    content = (room.data / "shared_pairs.jsonl").read_bytes()
    found["condaqa"] = {"n": content.count(b"\n"), "bytes": digest(content)}
    words = data / "lei/word_lists"
    flags = ("--subjects", str(words / "nouns/subjects/religion"), "--per-class", 20)
    flags += ("--templates", str(words / "slots/religion_noact"))
    flags += ("--attributes", str(words / "activities/biased_religion"))
    advice = str(data / "lei/interventions/religion_interventions.json")
    room.write("lei", *flags, "--interventions", advice, "--output", "shared_lei.json")
    keys = adapter.members(room.data / "shared_lei.json")
    content = (room.data / "shared_lei.json").read_bytes()
    found["lei_set"] = {"n": len(keys), "order": digest(keys), "bytes": digest(content)}
    return found


def goldens(shared: Path) -> dict[str, Callable[[Room], dict[str, Any]]]:
    """Name to a function that makes it."""
    readers = {
        f"windows_{name}": functools.partial(questions, f"{name}.json")
        for name in ("squad", "coqa", "hotpotqa")
    }
    readers |= {"windows_rows": rows, "windows_lei": lei_groups, "windows_unqover": unqover_groups}
    readers |= {"windows_choices": choices, "lei_sets": lei_sets, "perturbed": perturbed, "written": written}
    return {**readers, "shared_windows": functools.partial(shared_windows, shared)}
