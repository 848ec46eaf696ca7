"""Malformed files, generated from valid ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.malformed.documents import Format

Path_ = tuple[str | int, ...]
"""Where a value lies in a document: keys and indices from the outside in."""

REPLACEMENTS: dict[str, Any] = {
    "null": None,
    "number": 7,
    "fraction": 1.5,
    "truth": True,
    "text": "x",
    "list": ["x"],
    "object": {"x": 1},
}


class Case(NamedTuple):
    """A file, and what is to come of it."""

    form: Format
    name: str
    content: bytes | None
    """None: a folder stands in the file's place."""
    told: str | None
    """What the message names beside the file; None where the file is still good."""

    def __str__(self) -> str:
        return f"{self.form.name}: {self.name}"


def field_cases(form: Format) -> Iterator[Case]:
    """Each field left out, and replaced by a value of every other type."""
    for path, value in _fields(form.document):
        name = str(path[-1])
        told = "" if isinstance(path[-1], int) or "|" in name else form.told.get(name, name)
        if any(f".{unused}." in _dotted(path) for unused in form.unused):
            yield _case(form, f"without the unused {_told(path)}", _without(form.document, path), None)
            continue
        if isinstance(path[-1], str):
            result = None if name in form.optional else told
            yield _case(form, f"without {_told(path)}", _without(form.document, path), result)
        kinds = (type(value), *form.accepted.get(name, ()))
        for kind, other in REPLACEMENTS.items():
            if type(other) not in kinds:
                yield _case(form, f"{_told(path)} is {kind}", _with(form.document, path, other), told)


def byte_cases(form: Format) -> Iterator[Case]:
    """What happens to files as a whole."""
    raw = form.text.encode()
    yield Case(form, "with a byte order mark", b"\xef\xbb\xbf" + raw, None)
    yield Case(form, "with line ends of Windows", raw.replace(b"\n", b"\r\n"), None)
    yield Case(form, "a folder", None, "")
    for name, content in (
        ("empty", b""),
        ("white space", b" \n\n"),
        ("zeros", bytes(300)),
        ("latin-1", form.text.encode("latin-1")),
        ("utf-16", form.text.encode("utf-16")),
        ("utf-16 without a mark", form.text.encode("utf-16-le")),
        ("random bytes", bytes(range(255, 0, -1)) * 3),
        ("a byte of another text", raw[:30] + b"\xff" + raw[30:]),
    ):
        yield Case(form, name, content, "")
    if form.document is None:
        return
    for name, content in (
        ("cut after a quarter", raw[: len(raw) // 4]),
        ("cut before the middle", raw[: len(raw) * 2 // 5]),
        ("cut near the end", raw[:-4]),
        ("a zero inside", raw[:20] + b"\0" + raw[20:]),
        ("deeply nested lists", b"[" * 100_000),
        ("deeply nested objects", b'{"data": ' * 100_000),
        ("deeply nested at the end", raw.rstrip()[:-1] + b', "x": ' + b"[" * 100_000),
        ("a number of 5000 digits", b'{"data": ' + b"9" * 5000 + b"}"),
        ("a number", b"7"),
        ("a text", b'"x"'),
        ("null", b"null"),
        ("an empty object", b"{}"),
        ("an empty list", b"[]"),
        ("more behind its end", raw + b"\n]"),
    ):
        yield Case(form, name, content, "")


Change = Callable[[Any], Any]


def _set(*path_and_value: Any) -> Change:
    """A change that puts a value at a place."""
    *path, value = path_and_value
    return lambda document: _with(document, tuple(path), value)


def _both(*changes: Change) -> Change:
    def change(document: Any) -> Any:
        for one in changes:
            document = one(document)
        return document

    return change


def _repeated(*path: Any) -> Change:
    """The first record of the list at a place stands there twice."""

    def change(document: Any) -> Any:
        document = copy.deepcopy(document)
        target = document
        for part in path:
            target = target[part]
        target.append(copy.deepcopy(target[0]))
        return document

    return change


def _renamed(old: str, new: str) -> Change:
    """Of an object of records: another key for a record, whose place in the order stays."""

    def change(document: Any) -> Any:
        return {key.replace(old, new): value for key, value in document.items()}

    return change


_SQUAD = ("data", 0, "paragraphs", 0, "qas", 0)
_COQA = ("data", 0)
_LEI = ("data", 0, "paragraphs", 0)
_NAN, _INFINITE = float("nan"), float("inf")
_HUGE = 10**400

MEANINGS: dict[str, dict[str, tuple[Change, str]]] = {
    "squad.json": {
        "offset beyond the text": (_set(*_SQUAD, "answers", 0, "answer_start", 10_000), "q1"),
        "huge offset": (_set(*_SQUAD, "answers", 0, "answer_start", _HUGE), "q1"),
        "negative offset": (_set(*_SQUAD, "answers", 0, "answer_start", -3), "q1"),
        "offset beside the answer": (_set(*_SQUAD, "answers", 0, "answer_start", 3), "q1"),
        "offset not a number": (_set(*_SQUAD, "answers", 0, "answer_start", _NAN), "answer_start"),
        "infinite offset": (_set(*_SQUAD, "answers", 0, "answer_start", _INFINITE), "answer_start"),
        "answer without text": (_set(*_SQUAD, "answers", 0, "text", ""), "q1"),
        "answers to what has none": (_set(*_SQUAD, "is_impossible", True), "is_impossible"),
        "no questions at all": (_set("data", 0, "paragraphs", 0, "qas", []), ""),
        "an id twice": (_repeated(*_SQUAD[:-1]), "q1"),
    },
    "coqa.json": {
        "span reversed": (_set(*_COQA, "answers", 0, "span_start", 80), "turn 1"),
        "span beyond the story": (_set(*_COQA, "answers", 0, "span_end", 10_000), "turn 1"),
        "huge span": (_set(*_COQA, "answers", 0, "span_end", _HUGE), "turn 1"),
        "span before the story": (_set(*_COQA, "answers", 0, "span_start", -5), "turn 1"),
        "span not a number": (_set(*_COQA, "answers", 0, "span_start", _NAN), "span_start"),
        "empty story": (_set(*_COQA, "story", " "), "s1"),
        "empty question": (_set(*_COQA, "questions", 0, "input_text", ""), "turn 1"),
        "question without answer": (_set(*_COQA, "answers", 1, "turn_id", 9), "turn"),
        "turn twice": (_set(*_COQA, "questions", 1, "turn_id", 1), "turn 1"),
        "story twice": (_repeated("data"), "s1"),
        "no turns": (_both(_set(*_COQA, "questions", []), _set(*_COQA, "answers", [])), ""),
    },
    "hotpotqa.json": {
        "unknown title": (_set(0, "supporting_facts", 0, 0, "Shoes"), "Shoes"),
        "no sentence of that number": (_set(0, "supporting_facts", 0, 1, 99), "h1"),
        "no supporting fact": (_set(0, "supporting_facts", []), "h1"),
        "negative sentence": (_set(0, "supporting_facts", 0, 1, -1), "h1"),
        "huge sentence number": (_set(0, "supporting_facts", 0, 1, _HUGE), "h1"),
        "empty sentences": (_set(0, "context", 0, 1, ["", " "]), "h1"),
        "empty question": (_set(0, "question", ""), "h1"),
        "question twice": (_repeated(), "h1"),
    },
    "rows.jsonl": {
        "span reversed": (_set(1, "answer_spans", 0, "start", 80), "line 2"),
        "span beyond the context": (_set(1, "answer_spans", 0, "end", 10_000), "line 2"),
        "span beside its text": (_set(1, "rationale", 0, "text", "x"), "line 2"),
        "unknown variant": (_set(1, "variant", "tsr"), "variant"),
        "unknown type": (_set(1, "answer_type", "maybe"), "answer_type"),
        "pieces out of order": (_set(1, "kept", [[25, 40], [0, 20]]), "kept"),
        "pieces longer than the text": (_set(1, "kept", [[0, 10_000]]), "kept"),
        "piece of three": (_set(1, "kept", [[0, 1, 2]]), "kept"),
        "spans of an answer yes": (_set(1, "answer_type", "yes"), "answer_spans"),
        "another data set": (_set(1, "dataset", "squad"), "--dataset"),
        "row twice": (_set(1, "id", "s1 1"), "s1 1"),
    },
    "lei.json": {
        "offset beyond the text": (_set(*_LEI, "qas", 0, "answers", 0, "answer_start", 10_000), "data[0]"),
        "negative offset": (_set(*_LEI, "qas", 0, "answers", 0, "answer_start", -1), "data[0]"),
        "subjects that overlap": (
            _set(*_LEI, "qas", 0, "answers", 1, {"text": "Ayan", "answer_start": 0}),
            "data[0]",
        ),
        "one answer": (_set(*_LEI, "qas", 0, "answers", []), "data[0]"),
        "one question": (_set(*_LEI, "qas", []), "qas"),
        "key of six fields": (_set(*_LEI, "key", "ayan|boro|0|trait|was rude|was rude"), "7"),
        "key of one subject": (_set(*_LEI, "key", "ayan|ayan|0|trait|was rude|was rude|"), "ayan"),
        "key of another class": (_set(*_LEI, "intervention", "adversarial"), "intervention"),
        "unknown class": (
            _set(*_LEI, "key", "ayan|boro|0|trait|was rude|was rude|kind_trait-0"),
            "kind_trait-0",
        ),
        "impossible": (_set(*_LEI, "qas", 0, "is_impossible", "true"), "is_impossible"),
        "target 2": (_set(*_LEI, "qas", 0, "tomax", 2), "tomax"),
        "probability above 1": (
            _set(*_LEI, "qas", 0, "answers", 0, "start-end-score", [2, 0.1]),
            "start-end-score",
        ),
        "negative probability": (
            _set(*_LEI, "qas", 0, "answers", 0, "start-end-score", [-0.5, 0.1]),
            "start-end-score",
        ),
        "huge probability": (
            _set(*_LEI, "qas", 0, "answers", 0, "start-end-score", [_HUGE, 0.1]),
            "start-end-score",
        ),
        "probability not a number": (
            _set(*_LEI, "qas", 0, "answers", 0, "start-end-score", [_NAN, 0.1]),
            "start-end-score",
        ),
        "three probabilities": (
            _set(*_LEI, "qas", 0, "answers", 0, "start-end-score", [0.1] * 3),
            "start-end-score",
        ),
        "order twice": (_repeated("data"), "second time"),
        "no advice before the question": (_set(*_LEI, "qas", 0, "question", "Who was rude?"), "advice"),
    },
    "unqover.json": {
        "a field fewer": (_renamed("None|None|Ayan|Boro|", "None|Ayan|Boro|"), "id"),
        "a field more": (_renamed("None|None|Ayan|Boro|", "x|None|None|Ayan|Boro|"), "10 fields"),
        "one subject": (_renamed("Ayan|Boro", "Ayan|Ayan"), "ayan"),
        "two attributes": (_renamed("was rude|was rude", "was rude|was brave"), "attribute"),
        "unknown class": (_renamed("ethical_trait-0", "kind_trait-0"), "kind_trait-0"),
        "one context order": (lambda d: dict(list(d.items())[:-1]), "no record"),
        "the same order twice": (lambda d: d | {k + " ": v for k, v in d.items()}, "second time"),
        "huge probability": (lambda d: _first(d, "q0", "ans0", "start", _HUGE), "start"),
        "probability above 1": (lambda d: _first(d, "q0", "ans0", "start", 1.5), "start"),
        "probability not a number": (lambda d: _first(d, "q0", "ans0", "end", _NAN), "probability"),
        "infinite probability": (lambda d: _first(d, "q0", "ans0", "end", _INFINITE), "probability"),
        "a subject that is not there": (lambda d: _first(d, "q0", "ans0", "text", "Zed"), "Zed"),
    },
    "pairs.jsonl": {
        "the same answer": (_set(1, "answer_mod", "yes"), "answer_mod"),
        "the same story": (_both(_set(1, "story_mod", "x"), _set(1, "story_org", "x")), "story_mod"),
        "neither yes nor no": (_set(1, "answer_org", "perhaps"), "answer_org"),
        "empty question": (_set(1, "question", " "), "question"),
        "a turn of three": (_set(1, "history", [["a", "b", "c"]]), "history"),
        "pair twice": (_set(1, "id", "p1"), "p1"),
        "of two kinds": (_set(1, {"PassageEditID": 1}), "id"),
    },
    "condaqa.jsonl": {
        "unknown edit": (_set(1, "PassageEditID", 9), "PassageEditID"),
        "paraphrases only": (_set(1, "PassageEditID", 1), "no pair"),
        "no original": (lambda d: d[1:], "no pair"),
        "empty passage": (_set(1, "sentence1", ""), "sentence1"),
        "the same label": (_set(1, "label", "YES"), "no pair"),
    },
    "stimuli.json": {
        "neither yes nor no": (_set(1, "answer", "maybe"), "answer"),
        "row twice": (_repeated(), "row 3"),
        "empty story": (_set(1, "story", ""), "story"),
    },
    "interventions.json": {
        "unknown class": (_set("kind", {"rude": ["Be kind."]}), "kind"),
        "no sentence": (_set("ethical", {"rude": [], "wealth": [None]}), "ethical"),
        "category twice": (_set("ethical", {"rude": ["a"], "Rude ": ["b"]}), "rude"),
        "category with a bar": (_set("ethical", {"ru|de": ["a"]}), "ru|de"),
        "category without a name": (_set("ethical", {" ": ["a"]}), "category"),
        "sentence a number": (_set("ethical", "rude", [3]), "ethical"),
    },
}
"""Values of the right type that contradict the rest: by format, the change and what the message names."""

LINES: dict[str, dict[str, tuple[Callable[[str], str], str]]] = {
    "subjects": {
        "no head": (lambda t: t + "Orlo\n", "line 9"),
        "a wrong head": (lambda t: t + "[object] Orlo\n", "[object]"),
        "no name": (lambda t: t + "[subj]\n", "line 9"),
        "two bars": (lambda t: t + "[subj] a | b | c\n", "line 9"),
        "a name twice": (lambda t: t + "[subj] oro\n", "already"),
        "demonyms that do not align": (lambda t: t + "[subj:dem] Ulban\n", "align"),
        "comments only": (lambda t: "# nothing\n", ""),
        "one subject": (lambda t: "[subj] Ulban\n", "subject"),
    },
    "templates": {
        "two columns": (lambda t: "[subj1] met [subj2].\tWho [p_act]?\n", "line 1"),
        "four columns": (lambda t: t.rstrip() + "\tmore\n", "line 4"),
        "an empty column": (lambda t: "[subj1] met [subj2].\t \tWho [p_act:neg]?\n", "line 1"),
        "one subject": (lambda t: "[subj1] slept.\tWho [p_act]?\tWho [p_act:neg]?\n", "[subj2]"),
        "two forms": (
            lambda t: "[subj1] and [subj1:dem] met [subj2].\tWho [p_act]?\tWho [p_act:neg]?\n",
            "[subj1]",
        ),
        "a form that no list has": (
            lambda t: "[subj1:dem] met [subj2:dem].\tWho [p_act]?\tWho [p_act:neg]?\n",
            "dem",
        ),
        "an unknown attribute": (lambda t: "[subj1] met [subj2].\tWho [z]?\tWho [z:neg]?\n", ""),
    },
    "attributes": {
        "no negations": (lambda t: "[p_act] rude | was loud\n", "[p_act:neg]"),
        "a negation fewer": (lambda t: t.replace("[p_act:neg] rude | were quiet\n", ""), "[p_act:neg]"),
        "a kind without names": (lambda t: t.replace("[p_act] ", "# "), "[p_act]"),
        "a name twice": (lambda t: t.replace("were grumpy", "were loud"), "already"),
        "no head": (lambda t: t + "was kind\n", "line 17"),
    },
    "sentences.tsv": {
        "no tab": (lambda t: t.replace("\t", " ", 1), "line 1"),
        "no slot": (lambda t: t.replace("[subj]", "He", 1), "line 1"),
        "three columns": (lambda t: t.replace("\n", "\tmore\n", 1), "line 1"),
        "an attribute twice": (lambda t: t + "were loud\t[subj] sang.\n", "were loud"),
        "an unknown attribute": (lambda t: t + "flew\t[subj] sang.\n", "flew"),
        "an attribute fewer": (lambda t: t.partition("\n")[2], "were loud"),
    },
    "filler": {"two lines": (lambda t: t * 2, "2")},
}
"""Changes to word lists, and what the message names."""


def meaning_cases(form: Format) -> Iterator[Case]:
    """Files in the right shape that contradict themselves."""
    for name, (change, told) in MEANINGS.get(form.name, {}).items():
        yield _case(form, name, change(copy.deepcopy(form.document)), told)
    for name, (edit, told) in LINES.get(form.name, {}).items():
        yield Case(form, name, edit(form.text).encode(), told)


def _case(form: Format, name: str, document: Any, told: str | None) -> Case:
    return Case(form, name, form.dump(document).encode(), told)


def _fields(document: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every field of the first record at each level, and the first element of each list."""
    if isinstance(document, dict):
        items = list(document.items())
        # An object keyed by ids holds many records of one shape.
        items = items[:1] if items and "|" in str(items[0][0]) else items
    elif isinstance(document, list):
        items = [(0, document[0])] if document else []
    else:
        return
    for key, value in items:
        yield (*path, key), value
        yield from _fields(value, (*path, key))


def _with(document: Any, path: Path_, value: Any) -> Any:
    document = copy.deepcopy(document)
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return document


def _without(document: Any, path: Path_) -> Any:
    document = copy.deepcopy(document)
    target = document
    for part in path[:-1]:
        target = target[part]
    del target[path[-1]]
    return document


def _first(document: Any, *path_and_value: Any) -> Any:
    """A change inside the first record of an object of records."""
    *path, value = path_and_value
    return _with(document, (next(iter(document)), *path), value)


def _dotted(path: Path_) -> str:
    return "." + "".join(f"{part}." for part in path)


def _told(path: Path_) -> str:
    return ".".join("KEY" if "|" in str(part) else str(part) for part in path)
