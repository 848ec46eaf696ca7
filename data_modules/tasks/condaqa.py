"""Pairs of stories that answer one yes/no question in opposite ways: a file of pairs, or CondaQA.

The negation probe (faithfulness spec 5.2) asks the same question about a story and about the story with a
changed rationale. A file of pairs is JSON Lines:

    {"id": ..., "dataset": "coqa", "turn_id": 3, "history": [["question", "answer"], ...], "question": ...,
     "story_org": ..., "story_mod": ..., "answer_org": "yes", "answer_mod": "no", "edit": "scope"}

dataset, turn_id, history and edit (the kind of change, for a table of its own) may be absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt
from typing_extensions import TypedDict

from data_modules.schema import QAExample, Turn
from data_modules.tasks.predicate_argument import Text, YesNo, yes_no_question
from storage.errors import DataError
from storage.json_files import json_lines

EDITS = {1: "paraphrase", 2: "scope", 3: "affirmative"}
"""CondaQA's PassageEditID; 0 is the original. A paraphrase keeps the meaning. A scope edit moves what the
negation reaches, an affirmative edit takes it back; either may turn an answer or not."""


def _answer(text: Any) -> Any:
    return text.strip().rstrip(".").lower() if isinstance(text, str) else text


_Id = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
_Answer = Annotated[YesNo, BeforeValidator(_answer)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """One question and two stories with opposite answers: a row of a file of pairs."""

    id: _Id
    dataset: str = ""
    turn_id: StrictInt | None = None
    history: tuple[tuple[str, str], ...] = ()
    question: Text
    story_org: Text
    story_mod: Text
    answer_org: _Answer
    answer_mod: _Answer
    edit: str = ""
    """The kind of change, where it is known."""

    def examples(self) -> tuple[QAExample, QAExample]:
        """The question about the original and about the modified story."""
        name = self.id if self.turn_id is None else f"{self.id} {self.turn_id}"
        rest = (self.dataset, tuple(Turn(*turn) for turn in self.history))
        return (
            yes_no_question(f"{name} org", self.story_org, self.question, self.answer_org, *rest),
            yes_no_question(f"{name} mod", self.story_mod, self.question, self.answer_mod, *rest),
        )


class _EditRow(TypedDict):
    """What is used of a CondaQA record."""

    PassageID: _Id
    QuestionID: _Id
    PassageEditID: Annotated[StrictInt, Field(ge=0, le=3)]
    sentence1: Text
    sentence2: Text
    label: Annotated[str, AfterValidator(_answer)]


class PairSet(NamedTuple):
    """Pairs, and what was not made into one."""

    pairs: list[ContrastPair]
    left_out: Mapping[str, int]
    """Reason to number of edited passages (CondaQA); nothing is left out of a file of pairs."""


def read_pairs(path: str | Path) -> PairSet:
    """The pairs of a file of pairs, or those that CondaQA's file makes; the first record tells which it is.

    Raises:
        DataError: what is wrong in which line, two pairs with one id, or no pair at all.
    """
    _, first = next(json_lines(path, dict[str, Any], expected="the fields of a pair, or of CondaQA"))
    if "PassageEditID" in first:
        return read_condaqa(path)
    pairs: dict[tuple[str, str, int | None], ContrastPair] = {}
    for where, pair in json_lines(path, ContrastPair):
        if pair.answer_org == pair.answer_mod or pair.story_org == pair.story_mod:
            raise DataError(f"{where}: the two answers must differ, and so must the two stories")
        key = (pair.dataset, pair.id, pair.turn_id)  # CoQA's ids are those of stories
        if pairs.setdefault(key, pair) is not pair:
            raise DataError(f"{where}: a second pair {pair.id} with the turn_id {pair.turn_id}")
    return PairSet([*pairs.values()], {})


def read_condaqa(path: str | Path) -> PairSet:
    """CondaQA's original passages against their edits.

    An edit makes a pair if it is a scope or an affirmative edit, the original was asked the same question,
    and one of the two labels is yes and the other no. A paraphrase never does, whatever its label.

    Raises:
        DataError: a record lacks a field, or has one of another kind; or no edit makes a pair.
    """
    rows: dict[tuple[str, str, str, int], _EditRow] = {}
    left_out: Counter[str] = Counter()
    for _, row in json_lines(path, _EditRow):
        key = (row["PassageID"], row["QuestionID"], row["sentence2"], row["PassageEditID"])
        if rows.setdefault(key, row) is not row and key[-1]:
            left_out["that stand there twice"] += 1
    pairs = []
    for (passage, number, question, edit), row in rows.items():
        original = rows.get((passage, number, question, 0))
        if edit == 0:
            continue
        if EDITS[edit] == "paraphrase":
            left_out["paraphrases"] += 1
        elif original is None:
            left_out["without the original's answer"] += 1
        elif original["sentence1"] == row["sentence1"]:
            left_out["that change nothing"] += 1
        elif not {original["label"], row["label"]} <= {"yes", "no"}:
            left_out["with an answer other than yes and no"] += 1
        elif original["label"] == row["label"]:
            left_out["with the original's answer unchanged"] += 1
        else:
            pairs.append(
                ContrastPair(
                    id=f"{passage}-{number}-{EDITS[edit]}",
                    dataset="condaqa",
                    question=question,
                    story_org=original["sentence1"],
                    story_mod=row["sentence1"],
                    answer_org=cast(YesNo, original["label"]),
                    answer_mod=cast(YesNo, row["label"]),
                    edit=EDITS[edit],
                )
            )
    if not pairs:
        raise DataError(f"{path}: makes no pair; edited passages left out: {dict(left_out)}")
    return PairSet(pairs, dict(left_out.most_common()))
