"""Features that a classifier may learn instead of the label, and their wording.

A predicate gives 1, 0, or None for a text on neither side, which is left out; all use the raw text.
The paper's 22 tasks and the embedded ones are predicates with options:
configs/tasks/feature_bias.yaml.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import validate_call, with_config

from interventune.data_modules.schema.questions import TextPair, Texts
from interventune.data_modules.sources import labelled_rows
from interventune.storage.documents import DataError, Values, as_data_error, check, load_yaml

CONFIGURATION = Path(__file__).resolve().parents[2] / "configs/tasks/feature_bias.yaml"
Hypothesis = Literal["h1", "h2"]
HYPOTHESES: tuple[Hypothesis, ...] = get_args(Hypothesis)
"""The label, and the other feature."""
ANSWER = "answer is "
"""The text before the label in an explanation; the prediction follows it."""
TEXTS = ("premise hypothesis", "passage question", "sentence1 sentence2", "text", "comment_text")
"""Fields with the texts of a row, pairs first."""
Part = Literal["both", "first", "second"]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class LabelledText:
    """One text, or a pair, with its label."""

    id: str
    """Its place, for errors."""
    texts: Texts
    """One; or two: premise or passage, then hypothesis or question."""
    label: int
    """h1."""
    columns: Values = field(default_factory=dict)
    """All fields of its row, and the number of its `input`."""

    def part(self, of: Part = "both") -> str:
        """Return one text, or both as a model reads them, with one line break between and none
        inside.
        """
        if of != "both":
            return self.texts[("first", "second").index(of)]
        return "\n".join(" ".join(map(str.strip, text.splitlines())).strip() for text in self.texts)


def length(
    x: LabelledText,
    *,
    words: int = 40,
    margin: int = 0,
    of: Part = "both",
    one: Literal["shorter", "longer"] = "shorter",
) -> int | None:
    """1: fewer (or `longer`: more) than `words` words; 0: the reverse. Within `margin` of it:
    neither.
    """
    beyond = len(x.part(of).split()) - words
    return None if abs(beyond) <= margin else int((beyond < 0) == (one == "shorter"))


def pattern(x: LabelledText, *, one: str, zero: str = "", of: Part = "both") -> int | None:
    """1: the regular expression `one` is found, in any case; 0: `zero` is, or with no `zero`: it is
    not.
    """
    text = x.part(of)
    if re.search(one, text, re.I):
        return 1
    return 0 if re.search(zero, text, re.I) else None


def uppercase(x: LabelledText) -> int:
    """1: some word of two or more characters is all capitals; 0: none is. Fitted to the authors'
    files.
    """
    return int(any(len(word) > 1 and word.isupper() for word in _WORD.findall(x.part())))


def overlap(x: LabelledText, *, without: str = "") -> int:
    """1: every word of the second text, except those in `without`, occurs in the first; 0: one does
    not. Exact on the authors' file of pairs of sentences.
    """
    first, second = ({*_WORD.findall(text.lower())} for text in x.texts)
    return int(second - {*without.split()} <= first)


def shorter(x: LabelledText) -> int | None:
    """1: the second text has fewer words than the first; 0: more."""
    first, second = (len(text.split()) for text in x.texts)
    return None if first == second else int(second < first)


def column(x: LabelledText, *, name: str, one: str, zero: str) -> int | None:
    """1 or 0 by the value of a column (such as a domain or a genre)."""
    return {one: 1, zero: 0}.get(str(x.columns[name]))


def identity(x: LabelledText, *, one: str, zero: str = "") -> int | None:
    """1: annotators saw one of the groups `one` (share >= .5 in the column of that name) and none
    of `zero`; 0: the reverse, or without `zero`: none of `one`. Groups are separated by commas. A
    text without annotations has no side.
    """
    shares = [[x.columns[name] for name in names.split(",") if name] for names in (one, zero)]
    if all(share in (None, "") for side in shares for share in side):
        return None
    first, second = (any(float(share or 0) >= 0.5 for share in side) for side in shares)
    return None if zero and first == second else int(first)


FeatureName = Literal["length", "pattern", "uppercase", "overlap", "shorter", "column", "identity"]
PREDICATES: dict[str, Callable[..., int | None]] = {
    predicate.__name__: validate_call(predicate)
    for predicate in (length, pattern, uppercase, overlap, shorter, column, identity)
}


@with_config(extra="forbid")
@dataclass(frozen=True)
class Wording:
    """The wording of one of the two features; an empty field has no wording. Without their own
    texts, the instruction and the explanations are made of the two sentences. DataError: an
    explanation does not end in its label.

    >>> Wording(one="the text is brief", zero="the text is long").instructed
    'Write 1 when the text is brief, and 0 when the text is long.'
    """

    key: str = ""
    words: TextPair = ("no", "yes")
    """The label words of 0 and of 1."""
    zero: str = ""
    """A sentence without its full stop, true if the feature is 0."""
    one: str = ""
    instruction: str = ""
    """The text before the demonstrations (the paper's are in Tables 7 and 8)."""
    explanations: TextPair | None = None
    """The texts after the key in demonstrations of 0 and of 1 (Tables 9 and 10)."""

    def __post_init__(self) -> None:
        for label, text in enumerate(self.explanations or ()):
            if not text.strip().rstrip(".").endswith(end := f"{ANSWER}{label}"):
                raise DataError(f"the explanation {text!r} must end in '{end}.'")

    @property
    def instructed(self) -> str:
        """Return the instruction."""
        made = f"Write 1 when {self.one}, and 0 when {self.zero}." if self.one and self.zero else ""
        return self.instruction or made

    @property
    def explained(self) -> Texts:
        """Return the text after the key in demonstrations of 0 and of 1."""
        if self.explanations or not (self.one and self.zero):
            return self.explanations or ()
        return f"Here, {self.zero}, so the {ANSWER}0.", f"Here, {self.one}, so the {ANSWER}1."


Wordings = dict[str, dict[Hypothesis, Wording]]
"""A user's file: wordings by task, or under `*` for all other tasks."""


@with_config(extra="forbid")
@dataclass(frozen=True)
class Recipe:
    """How to make a task from labelled texts."""

    feature: FeatureName
    """h2."""
    options: Values = field(default_factory=dict)
    h1: Wording | None = None
    h2: Wording | None = None
    label: str = "label"
    """Field of the label; rows without one are left out."""
    positive: Texts = ()
    """Labels that are 1; all others are 0."""
    threshold: float | None = None
    """Labels of at least this value are 1."""
    max_words: int = 1_000_000
    max_characters: int = 1_000_000
    family: str = ""
    """The paper's family of the task: NLI, SA, TC or QA; `stories` for the embedded ones."""

    @property
    def wordings(self) -> dict[Hypothesis, Wording]:
        """Return the wordings that are given."""
        both: dict[Hypothesis, Wording | None] = {"h2": self.h2, "h1": self.h1}
        return {name: wording for name, wording in both.items() if wording}

    def side(self, x: LabelledText) -> int | None:
        """Return the feature of a text: 1, 0, or None. DataError for options that do not fit, or if
        the feature needs a second text or a column that is absent.
        """
        with as_data_error(
            f"{x.id}: the feature {self.feature} needs other options, a text or a column"
        ):
            return PREDICATES[self.feature](x, **self.options)

    def read(self, sources: Sequence[str]) -> Iterator[LabelledText]:
        """Yield the texts of tables; DataError names place and field."""
        for number, source in enumerate(sources, 1):
            for where, row in labelled_rows(source):
                names = next(
                    (names for names in map(str.split, TEXTS) if row.keys() >= {*names}), []
                )
                if not names or self.label not in row:
                    raise DataError(
                        f"{where}: needs the label {self.label!r} and a text ({', '.join(TEXTS)}), "
                        f"found {', '.join(row)}"
                    )
                value = str(row[self.label]).strip()
                texts = tuple("" if row[name] is None else str(row[name]) for name in names)
                if value.lower() in ("", "-", "-1", "none") or "" in texts:  # no label, no text
                    continue
                columns = {**row, "input": number}
                example = LabelledText(where, texts, self.labelled(value, where), columns)
                text = example.part()
                if len(text.split()) <= self.max_words and len(text) <= self.max_characters:
                    yield example

    def labelled(self, value: str, where: str) -> int:
        """Convert a label to 1 or 0; DataError if it is neither."""
        if self.positive:
            return int(value in self.positive)
        with as_data_error(
            f"{where}: the label must be 0 or 1 (or name positive ones, or a threshold)"
        ):
            if self.threshold is not None:
                return int(float(value) >= self.threshold)
            return {"0": 0, "1": 1, "false": 0, "true": 1}[value.lower()]


@cache
def recipes(path: Path = CONFIGURATION) -> dict[str, Recipe]:
    """Return the tasks of a file by name: the paper's and the embedded ones, or your own."""
    return check(load_yaml(path, Values).get("tasks"), dict[str, Recipe], f"{path}, tasks")


def counted_with(task: str) -> dict[str, str]:
    """Return the family and feature of one of the paper's tasks in its tables; empty for other
    tasks.

    >>> counted_with("nli_entailment_genre_gov_fic"), counted_with("my_task")
    ({'family': 'NLI', 'feature': 'genre'}, {'family': '', 'feature': ''})
    """
    recipe = recipes().get(task)
    family = recipe.family if recipe else ""
    feature = "" if family in ("", "stories") else task.split("_")[2]
    return {"family": family, "feature": feature}


def wordings_of(
    task: str, in_file: dict[Hypothesis, Wording], from_user: Wordings
) -> dict[Hypothesis, Wording]:
    """Return the wordings of a task's two features: the user's, its file's, or those known for its
    name. What the user's leaves empty stays.
    """
    recipe = recipes().get(task)
    known = recipe.wordings if recipe else {}
    wordings: dict[Hypothesis, Wording] = {"h1": Wording(), "h2": Wording(), **known, **in_file}
    for name, own in from_user.get(task, from_user.get("*", {})).items():
        wordings[name] = replace(wordings[name], **{k: v for k, v in asdict(own).items() if v})
    return wordings
