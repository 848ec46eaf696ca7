"""External answers as an answerer: a file instead of a model.

    interventune evaluate faithfulness --predictions gpt=answers.jsonl --data os.jsonl ts_r.jsonl
    --output DIR

JSON Lines, one answer per row:

    {"id": "3dr23u6we5exclen4th8uq9rb42tel_4", "variant": "ts_r", "answer": "the kitchen"}

`id` is that of the question, `variant` that of its story (absent: `os`). For a negated pair,
`variant` is `org` or `mod`; for a question about a colour, it is the wording `org`, `mod` or `new`.
Other layouts: {id: answer}, `prediction_text`, CoQA's `turn_id`, samples of lm-evaluation-harness,
a JSON log of inspect.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NotRequired

from pydantic import AliasChoices, AliasPath, Field
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import VARIANTS, Answer, QAExample
from interventune.data_modules.sources import labelled_rows
from interventune.storage.documents import DataError, check, file_digest

from .interface import Answerer
from .sources import Model, named_models

MISSING = "not among the predictions"
_ID = AliasChoices("id", AliasPath("doc", "id"), AliasPath("doc", "_id"), "doc_id")
_CONTENT = AliasPath("output", "choices", 0, "message", "content")
_TEXT = AliasChoices("answer", "prediction_text", AliasPath("resps", 0, 0), _CONTENT)


class AnswerRow(TypedDict):
    """An answer, or a row of a report."""

    id: Annotated[str | int, Field(validation_alias=_ID)]
    answer: Annotated[str, Field(validation_alias=_TEXT)]
    turn_id: NotRequired[int]
    variant: NotRequired[str]
    prediction: NotRequired[Any]


class Predictions(Answerer):
    """Answers by id and variant; a question without one counts as a failure. DataError for a
    malformed row, two answers to one question, or no row. A file needs no options.
    """

    def __init__(self, path: str, _: Any = None) -> None:
        self.path = path
        self.text_of: dict[tuple[str, str], str] = {}
        for where, row in self.rows():
            name = " ".join(str(row[part]) for part in ("id", "turn_id") if part in row)
            variant = row.get("variant", "os")
            # The probes' questions have the wording in their ids.
            key = (name, variant) if variant in VARIANTS else (f"{name} {variant}", "os")
            # In examples.jsonl, `answer` is the right answer, `prediction` the model's.
            if "prediction" in row or self.text_of.setdefault(key, row["answer"]) != row["answer"]:
                raise DataError(
                    f"{where}: a second answer to {name!r} ({variant}); keep the model's"
                )

    def rows(self) -> Iterator[tuple[str, AnswerRow]]:
        """(place, answer) for each row, or for each item of {id: answer}, which HotpotQA calls
        `answer`.
        """
        for where, row in labelled_rows(self.path):
            texts = row.get("answer", row)
            answers = [row]
            if isinstance(texts, dict) and row.keys().isdisjoint({"id", "doc_id"}):
                answers = [{"id": name, "answer": text} for name, text in texts.items()]
            yield from ((where, check(answer, AnswerRow, where)) for answer in answers)

    @property
    def identity(self) -> dict[str, Any]:
        return {"answers": file_digest(self.path)}

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        for i, example in enumerate(examples):
            key = (example.id, example.variant)
            failure = "" if key in self.text_of else MISSING
            yield Answer(i, self.text_of.get(key, ""), failure=failure)


def named_answerers(
    checkpoint: Sequence[str] | None, predictions: Sequence[str] | None
) -> list[Model]:
    """Return models, then files of answers.

    Raises:
        ValueError: no source, two with one name, or predictions that are no .jsonl or .json, as a
            model.
    """
    for path in predictions or ():
        if not path.endswith((".jsonl", ".json")):
            raise ValueError(f"--predictions {path}: name a file that ends in .jsonl or .json")
    sources = [*(checkpoint or ()), *(predictions or ())]
    if not sources:
        raise ValueError(
            "name a model with --checkpoint, or answers made elsewhere with --predictions"
        )
    return named_models(sources)
