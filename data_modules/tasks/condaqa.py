"""Pairs of stories that answer one yes/no question in opposite ways: a file of pairs, or CondaQA.

The negation probe (faithfulness spec 5.2) asks the same question about a story and about the story with a
changed rationale. A file of pairs is JSON Lines:

    {"id": ..., "dataset": "coqa", "turn_id": 3, "history": [["question", "answer"], ...], "question": ...,
     "story_org": ..., "story_mod": ..., "answer_org": "yes", "answer_mod": "no", "edit": "scope"}

dataset, turn_id, history and edit (the kind of change, for a table of its own) may be absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt
from typing_extensions import TypedDict

from data_modules.schema import QAExample, Turn
from data_modules.tasks.predicate_argument import Text, YesNo, yes_no_question
from storage.errors import DataError
from storage.json_files import check, json_lines, write_json_lines

EDITS = {1: "paraphrase", 2: "scope", 3: "affirmative"}
"""CondaQA's PassageEditID; 0 is the original. A paraphrase keeps the meaning. A scope edit moves what the
negation reaches, an affirmative edit takes it back; either may turn an answer or not."""

TURNING = ("scope", "affirmative")
"""Edits that make pairs, where the labels are opposite."""


def _answer(text: Any) -> Any:
    return text.strip().rstrip(".").lower() if isinstance(text, str) else text


def _turns(listed: Iterable[Any] | None) -> Any:
    return tuple(Turn(*check(turn, _Turn, "history")) for turn in listed or ())


_Turn: Any = tuple[str, str]
_Id = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
_Optional = Annotated[str, BeforeValidator(lambda text: "" if text is None else text)]
_Answer = Annotated[YesNo, BeforeValidator(_answer)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """One question and two stories with opposite answers: a row of a file of pairs."""

    id: _Id
    dataset: _Optional = ""
    turn_id: StrictInt | None = None
    history: Annotated[tuple[Turn, ...], BeforeValidator(_turns)] = ()
    question: Text
    story_org: Text
    story_mod: Text
    answer_org: _Answer
    answer_mod: _Answer
    edit: _Optional = ""
    """The kind of change, where it is known."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        """What tells pairs apart; CoQA's ids are those of stories."""
        return self.dataset, self.id, self.turn_id

    def examples(self) -> tuple[QAExample, QAExample]:
        """The question about the original and about the modified story."""
        name = " ".join(str(part) for part in (self.id, self.turn_id) if part is not None)
        rest = (self.dataset, self.history)
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
    _, first = next(json_lines(path, dict[str, Any], expected="the fields of a pair, or of CondaQA"))
    if "PassageEditID" in first:
        return read_condaqa(path)
    pairs: dict[tuple[str, str, int | None], ContrastPair] = {}
    for where, pair in json_lines(path, ContrastPair):
        if pair.answer_org == pair.answer_mod:
            raise DataError(
                f"{where}: answer_org and answer_mod are both {pair.answer_org}; they must differ"
            )
        if pair.story_org == pair.story_mod:
            raise DataError(
                f"{where}: story_org and story_mod are the same text, which cannot answer yes and no"
            )
        if pairs.setdefault(pair.key, pair) is not pair:
            shown = pair.id if pair.turn_id is None else f"{pair.id}, turn {pair.turn_id}"
            raise DataError(f"{where}: a second pair with the id {shown}")
    return PairSet(list(pairs.values()), {})


def read_condaqa(path: str | Path) -> PairSet:
    """CondaQA's original passages against their edits.

    An edit makes a pair if it is a scope or an affirmative edit, the original was asked the same question,
    and one of the two labels is yes and the other no. A paraphrase never does, whatever its label.

    Raises:
        DataError: a record lacks a field, or has one of another kind; or no edit makes a pair.
    """
    left_out: Counter[str] = Counter()
    originals: dict[tuple[str, str, str], _EditRow] = {}
    edits: dict[tuple[str, str, str, int], _EditRow] = {}
    for _, row in json_lines(path, _EditRow):
        key, edit = (row["PassageID"], row["QuestionID"], row["sentence2"]), row["PassageEditID"]
        if edit == 0:
            originals.setdefault(key, row)
        elif edits.setdefault((*key, edit), row) is not row:
            left_out["that stand there twice"] += 1
    pairs = []
    for (passage, number, question, edit), row in edits.items():
        original = originals.get((passage, number, question))
        org, mod = original["label"] if original else "", row["label"]
        if EDITS[edit] not in TURNING:
            left_out["paraphrases"] += 1
        elif original is None:
            left_out["without the original's answer"] += 1
        elif original["sentence1"] == row["sentence1"]:
            left_out["that change nothing"] += 1
        elif not {org, mod} <= {"yes", "no"}:
            left_out["with an answer other than yes and no"] += 1
        elif org == mod:
            left_out["with the original's answer unchanged"] += 1
        else:
            pairs.append(
                ContrastPair(
                    id=f"{passage}-{number}-{EDITS[edit]}",
                    dataset="condaqa",
                    question=question,
                    story_org=original["sentence1"],
                    story_mod=row["sentence1"],
                    answer_org=cast(YesNo, org),
                    answer_mod=cast(YesNo, mod),
                    edit=EDITS[edit],
                )
            )
    if not pairs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise DataError(f"{path}: makes no pair; edited passages left out: {reasons or 'none'}")
    return PairSet(pairs, dict(left_out.most_common()))


def write_pairs(pairs: Iterable[ContrastPair], path: str | Path) -> int:
    """Write a file of pairs; how many there were."""
    rows = (asdict(pair) | {"history": list(map(astuple, pair.history))} for pair in pairs)
    return write_json_lines(path, rows)
