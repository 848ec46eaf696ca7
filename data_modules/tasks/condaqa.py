"""Pairs of stories that answer one yes/no question in opposite ways: a file of pairs, or CondaQA.

The negation probe (faithfulness spec 5.2) asks the same question about a story and about the story with a
changed rationale. A file of pairs is JSON Lines:

    {"id": ..., "dataset": "coqa", "turn_id": 3, "history": [["question", "answer"], ...], "question": ...,
     "story_org": ..., "story_mod": ..., "answer_org": "yes", "answer_mod": "no", "edit": "scope"}

dataset, turn_id, history and edit (the kind of change, for a table of its own) may be absent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_modules.schema import QAExample, Turn
from storage.errors import DataError
from storage.json_files import atomic_text, field, parse_line

YesNo = Literal["yes", "no"]

EDITS = {1: "paraphrase", 2: "scope", 3: "affirmative"}
"""CondaQA's PassageEditID; 0 is the original. A paraphrase keeps the meaning. A scope edit moves what the
negation reaches, an affirmative edit takes it back; either may turn an answer or not."""

_IDS = ("PassageID", "QuestionID")

TURNING = ("scope", "affirmative")
"""Edits that make pairs, where the labels are opposite."""


@dataclass(frozen=True, slots=True)
class ContrastPair:
    """One question and two stories with opposite answers."""

    id: str
    question: str
    story_org: str
    story_mod: str
    answer_org: YesNo
    answer_mod: YesNo
    history: tuple[Turn, ...] = ()
    dataset: str = ""
    turn_id: int | None = None
    edit: str = ""
    """The kind of change, where it is known."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        """What tells pairs apart; CoQA's ids are those of stories."""
        return self.dataset, self.id, self.turn_id

    def examples(self) -> tuple[QAExample, QAExample]:
        """The question about the original and about the modified story."""
        name = " ".join(str(part) for part in (self.id, self.turn_id) if part is not None)
        return (
            self._example(f"{name} org", self.story_org, self.answer_org),
            self._example(f"{name} mod", self.story_mod, self.answer_mod),
        )

    def _example(self, name: str, story: str, answer: YesNo) -> QAExample:
        return QAExample(
            name,
            story,
            self.question,
            answer_type=answer,
            history=self.history,
            references=(answer,),
            dataset=self.dataset,
        )


@dataclass(frozen=True)
class PairSet:
    """Pairs, and what was not made into one."""

    pairs: list[ContrastPair]
    left_out: Mapping[str, int]
    """Reason to number of edited passages (CondaQA); nothing is left out of a file of pairs."""


def read_pairs(path: str | Path) -> PairSet:
    """The pairs of a file of pairs, or those that CondaQA's file makes; the first record tells which it is.

    Raises:
        DataError: what is wrong in which line, two pairs with one id, or no pair at all.
    """
    records = _json_lines(path)
    first = records[0][1]
    if isinstance(first, dict) and "PassageEditID" in first:
        return _some(condaqa_pairs(records), path)
    pairs = [_pair(record, where) for where, record in records]
    _check_keys(pairs, [where for where, _ in records])
    return PairSet(pairs, {})


def read_condaqa(path: str | Path) -> PairSet:
    """The pairs that CondaQA's file makes; DataError as in `condaqa_pairs`, and where it makes none."""
    return _some(condaqa_pairs(_json_lines(path)), path)


def _some(found: PairSet, path: str | Path) -> PairSet:
    if not found.pairs:
        told = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
        raise DataError(f"{path}: makes no pair; edited passages left out: {told or 'none'}")
    return found


def write_pairs(pairs: Iterable[ContrastPair], path: str | Path) -> int:
    """Write a file of pairs; how many there were."""
    count = 0
    with atomic_text(path) as file:
        for pair in pairs:
            record = {
                "id": pair.id,
                "dataset": pair.dataset,
                "turn_id": pair.turn_id,
                "history": [[turn.question, turn.answer] for turn in pair.history],
                "question": pair.question,
                "story_org": pair.story_org,
                "story_mod": pair.story_mod,
                "answer_org": pair.answer_org,
                "answer_mod": pair.answer_mod,
                "edit": pair.edit,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def condaqa_pairs(records: Iterable[tuple[str, Any]]) -> PairSet:
    """CondaQA's original passages against their edits.

    An edit makes a pair if it is a scope or an affirmative edit, the original was asked the same question,
    and one of the two labels is yes and the other no. A paraphrase never does, whatever its label.

    Args:
        records: where each stands (for errors), and the record.

    Raises:
        DataError: a record lacks a field, or has one of another kind.
    """
    read = [_Edited.of(record, where) for where, record in records]
    left_out: Counter[str] = Counter()
    originals: dict[tuple[str, str, str], _Edited] = {}
    edits: dict[tuple[str, str, str, int], _Edited] = {}
    for item in read:
        if item.edit == 0:
            originals.setdefault(item.key, item)
        elif edits.setdefault((*item.key, item.edit), item) is not item:
            left_out["that stand there twice"] += 1
    pairs = []
    for edited in edits.values():
        original = originals.get(edited.key)
        reason = _unfit(original, edited)
        if original is None or reason:
            left_out[reason] += 1
        else:
            pairs.append(_condaqa_pair(original, edited))
    return PairSet(pairs, dict(left_out.most_common()))


@dataclass(frozen=True, slots=True)
class _Edited:
    """What is used of a CondaQA record."""

    key: tuple[str, str, str]
    """PassageID, QuestionID, and the question itself."""
    edit: int
    passage: str
    label: str

    @classmethod
    def of(cls, record: Any, where: str) -> _Edited:
        passage, number = (str(field(record, name, (int, str), where)) for name in _IDS)
        edit = field(record, "PassageEditID", int, where)
        if edit != 0 and edit not in EDITS:
            raise DataError(f"{where}: PassageEditID must be 0 (original), 1, 2 or 3, found {edit}")
        return cls(
            (passage, number, _text(record, "sentence2", where)),
            edit,
            _text(record, "sentence1", where),
            field(record, "label", str, where).strip().rstrip(".").lower(),
        )


def _unfit(original: _Edited | None, edited: _Edited) -> str:
    """Why the two make no pair; empty if they do."""
    if EDITS[edited.edit] not in TURNING:
        return "paraphrases"
    if original is None:
        return "without the original's answer"
    if original.passage == edited.passage:
        return "that change nothing"
    if not {original.label, edited.label} <= {"yes", "no"}:
        return "with an answer other than yes and no"
    return "with the original's answer unchanged" if original.label == edited.label else ""


def _condaqa_pair(original: _Edited, edited: _Edited) -> ContrastPair:
    return ContrastPair(
        id="-".join((*edited.key[:2], EDITS[edited.edit])),
        question=edited.key[2],
        story_org=original.passage,
        story_mod=edited.passage,
        answer_org=original.label,  # type: ignore[arg-type]  # _unfit has looked
        answer_mod=edited.label,  # type: ignore[arg-type]
        dataset="condaqa",
        edit=EDITS[edited.edit],
    )


def _pair(record: Any, where: str) -> ContrastPair:
    """A pair of a file of pairs."""
    pair = ContrastPair(
        id=str(field(record, "id", (str, int), where)),
        question=_text(record, "question", where),
        story_org=_text(record, "story_org", where),
        story_mod=_text(record, "story_mod", where),
        answer_org=_answer(record, "answer_org", where),
        answer_mod=_answer(record, "answer_mod", where),
        history=_history(record, where),
        dataset=_optional(record, "dataset", str, where) or "",
        turn_id=_optional(record, "turn_id", int, where),
        edit=_optional(record, "edit", str, where) or "",
    )
    if pair.answer_org == pair.answer_mod:
        raise DataError(f"{where}: answer_org and answer_mod are both {pair.answer_org}; they must differ")
    if pair.story_org == pair.story_mod:
        raise DataError(f"{where}: story_org and story_mod are the same text, which cannot answer yes and no")
    return pair


def _check_keys(pairs: list[ContrastPair], places: list[str]) -> None:
    seen: dict[tuple[str, str, int | None], str] = {}
    for pair, where in zip(pairs, places, strict=True):
        if pair.key in seen:
            shown = pair.id if pair.turn_id is None else f"{pair.id}, turn {pair.turn_id}"
            raise DataError(f"{where}: a second pair with the id {shown} (the first: {seen[pair.key]})")
        seen[pair.key] = where


def _answer(record: Any, name: str, where: str) -> YesNo:
    value = field(record, name, str, where).strip().rstrip(".").lower()
    if value == "yes" or value == "no":
        return value
    raise DataError(f"{where}: the field {name!r} must be yes or no, found {record[name]!r}")


def _history(record: Any, where: str) -> tuple[Turn, ...]:
    turns = _optional(record, "history", list, where) or []
    for turn in turns:
        if not isinstance(turn, list) or len(turn) != 2 or not all(isinstance(part, str) for part in turn):
            raise DataError(f"{where}: 'history' must hold [question, answer] pairs of texts, found {turn!r}")
    return tuple(Turn(question, answer) for question, answer in turns)


def _text(record: Any, name: str, where: str) -> str:
    value = str(field(record, name, str, where))
    if not value.strip():
        raise DataError(f"{where}: the field {name!r} is empty")
    return value


def _optional(record: Any, name: str, kind: type, where: str) -> Any:
    return None if record.get(name) is None else field(record, name, kind, where)


def _json_lines(path: str | Path) -> list[tuple[str, Any]]:
    """(where, record) for every line that is not empty; DataError for a file without any."""
    records = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path}: line {number}"
                    records.append((where, parse_line(line, where)))
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if not records:
        raise DataError(f"{path}: holds no records; expected JSON Lines")
    return records
