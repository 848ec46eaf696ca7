"""Pairs of stories that answer one yes/no question in opposite ways: a file of pairs, or CondaQA.

    {"id": ..., "dataset": "coqa", "turn_id": 3, "history": [["question", "answer"], ...],
     "question": ..., "story_org": ..., "story_mod": ..., "answer_org": "yes", "answer_mod": "no",
     "edit": "scope"}
The negation probe uses both (Chaturvedi et al. 2023, section 6). dataset, turn_id, history and edit
may be absent.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictInt
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import QAExample, Turn
from interventune.data_modules.sources import labelled_rows
from interventune.storage.errors import DataError
from interventune.storage.json_files import check

from .predicate_argument import YesNo

EDITS = {2: "scope", 3: "affirmative"}
"""CondaQA's PassageEditID; 0 is the original, 1 a paraphrase. A scope edit changes what the
negation applies to, an affirmative edit removes it; either may change an answer.
"""
Text = Annotated[str, Field(pattern=r"\S")]
_Id = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
_Answer = BeforeValidator(lambda text: str(text).strip().rstrip(".").lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastPair:
    """One question and two stories with opposite answers: a line of a file of pairs."""

    id: _Id
    dataset: str = ""
    turn_id: StrictInt | None = None
    history: tuple[tuple[str, str], ...] = ()
    question: Text
    story_org: Text
    story_mod: Text
    answer_org: Annotated[YesNo, _Answer]
    answer_mod: Annotated[YesNo, _Answer]
    edit: str = ""
    """The kind of change, if known."""

    def __post_init__(self) -> None:
        if self.answer_org == self.answer_mod or self.story_org == self.story_mod:
            raise DataError("the two answers must differ, and so must the two stories")

    def examples(self) -> tuple[QAExample, QAExample]:
        """Return the question about the original and about the modified story."""
        name = self.id if self.turn_id is None else f"{self.id} {self.turn_id}"
        original, modified = (
            QAExample(
                f"{name} {side}",
                story,
                self.question,
                answer_type=answer,
                history=tuple(Turn(*turn) for turn in self.history),
                references=(answer,),
                dataset=self.dataset,
            )
            for side, story, answer in (
                ("org", self.story_org, self.answer_org),
                ("mod", self.story_mod, self.answer_mod),
            )
        )
        return original, modified


class _EditRow(TypedDict):
    """What is used of a CondaQA record."""

    PassageID: _Id
    QuestionID: _Id
    PassageEditID: Annotated[StrictInt, Field(ge=0, le=3)]
    sentence1: Text
    sentence2: Text
    label: Annotated[str, _Answer]


def read_pairs(path: str | Path) -> tuple[list[ContrastPair], int]:
    """Read the pairs of a file of pairs, or of CondaQA's file, with the number of CondaQA's edited
    passages without a pair. DataError names line and field, or says that there is no pair at all.
    """
    if "PassageEditID" in next(labelled_rows(str(path)))[1]:
        return read_condaqa(path)
    pairs: dict[tuple[str, str, int | None], ContrastPair] = {}
    for where, row in labelled_rows(str(path)):
        pair = check(row, ContrastPair, where)
        key = (pair.dataset, pair.id, pair.turn_id)  # CoQA's ids identify stories
        if pairs.setdefault(key, pair) is not pair:
            raise DataError(f"{where}: a second pair {pair.id} with the turn_id {pair.turn_id}")
    return [*pairs.values()], 0


def read_condaqa(path: str | Path) -> tuple[list[ContrastPair], int]:
    """Pair CondaQA's original passages with their edits: a scope or an affirmative edit makes a
    pair if the original has the same question, and one label is yes and the other no.
    """
    rows = {
        (row["PassageID"], row["QuestionID"], row["sentence2"], row["PassageEditID"]): row
        for row in (check(row, _EditRow, where) for where, row in labelled_rows(str(path)))
    }
    edits = [(key, row) for key, row in rows.items() if key[-1] > 0]
    pairs = []
    for (passage, number, question, edit), row in edits:
        original = rows.get((passage, number, question, 0), row)  # itself, with the same answer
        if edit in EDITS and {original["label"], row["label"]} == {"yes", "no"}:
            pair = {
                "id": f"{passage}-{number}-{EDITS[edit]}",
                "dataset": "condaqa",
                "edit": EDITS[edit],
                "question": question,
                "story_org": original["sentence1"],
                "story_mod": row["sentence1"],
                "answer_org": original["label"],
                "answer_mod": row["label"],
            }
            pairs.append(check(pair, ContrastPair, f"{path}, PassageID {passage}"))
    if not pairs:
        raise DataError(f"{path}: none of {len(edits)} edited passages makes a pair")
    return pairs, len(edits) - len(pairs)
