"""The features that a classifier may have learned in place of the label, and what they mean in words.

    from data_modules.tasks.features import FEATURES
    FEATURES["uppercase"]()(LabelledText("1", "What a GREAT film.", "", 1))     # 1

A predicate says 1, 0, or None for a text that belongs to neither side and is left out. All act on the raw
text. The paper's 22 tasks are these with options: configs/tasks/feature_bias.yaml.

Wordings of features for prompts are ours, unless a JSON file gives others:

    {"boolq_answer_qword": {
        "h1": {"key": "Answer?", "words": ["no", "yes"], "instruction": "...", "explanation": ["...", "..."]},
        "h2": {...}}}

Words and explanations stand in the order of the labels: first what goes with 0, then with 1. `*` in place of
a task's name serves all tasks that are not named. An explanation is what follows the key in a demonstration;
it ends in "answer is 0." or "answer is 1.".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from data_modules.tasks.labelled_texts import LabelledText, Part, Rows
from storage.errors import DataError
from storage.json_files import check, load_json, load_yaml

CONFIGURATION = Path(__file__).resolve().parents[2] / "configs" / "tasks" / "feature_bias.yaml"
Hypothesis = Literal["h1", "h2"]
HYPOTHESES: tuple[Hypothesis, ...] = get_args(Hypothesis)
"""The label, and the other feature."""
ANSWER = "answer is "
"""What stands before the label in an explanation; the prediction is what follows it."""
Predicate = Callable[[LabelledText], int | None]
_WORD = re.compile(r"\w+")


def length(
    *, words: int = 40, margin: int = 0, of: Part = "both", one: Literal["shorter", "longer"] = "shorter"
) -> Predicate:
    """1: shorter (or `longer`) than `words` words; 0: longer (shorter). Within `margin` of it: neither."""

    def value(x: LabelledText) -> int | None:
        beyond = len(x.part(of).split()) - words
        return None if abs(beyond) <= margin else int((beyond < 0) == (one == "shorter"))

    return value


def pattern(*, one: str, zero: str = "", of: Part = "both") -> Predicate:
    """1: the regular expression `one` is found, in any case; 0: `zero` is, or with no `zero`: it is not."""
    ones, zeros = re.compile(one, re.I), re.compile(zero, re.I)
    return lambda x: 1 if ones.search(x.part(of)) else 0 if zeros.search(x.part(of)) else None


def uppercase() -> Predicate:
    """1: some word of two or more characters is all capitals; 0: none is (spec C3: fitted)."""
    return lambda x: int(any(len(word) > 1 and word.isupper() for word in _WORD.findall(x.part("both"))))


def overlap(*, without: str = "") -> Predicate:
    """1: every word of the second text, but those `without`, occurs in the first; 0: one does not (spec C3:
    exact on the released file of pairs of sentences)."""

    def value(x: LabelledText) -> int:
        first, second = ({*_WORD.findall(text.lower())} for text in (x.text, x.second))
        return int(second - {*without.split()} <= first)

    return value


def shorter() -> Predicate:
    """1: the second text has fewer words than the first; 0: more."""

    def value(x: LabelledText) -> int | None:
        first, second = len(x.text.split()), len(x.second.split())
        return None if first == second else int(second < first)

    return value


def column(*, name: str, one: str, zero: str) -> Predicate:
    """1 or 0 by the value of a column (a domain or a genre)."""
    sides = {one: 1, zero: 0}
    return lambda x: sides.get(str(x.columns[name]))


def identity(*, one: str, zero: str = "", threshold: float = 0.5) -> Predicate:
    """1: annotators saw one of the groups `one` (share >= `threshold` in the column of that name) and none of
    `zero`; 0: the other way round, or with no `zero`: none of `one`. Several groups are listed with commas. A
    text that nobody annotated has no side."""

    def value(x: LabelledText) -> int | None:
        shares = [[x.columns[name] for name in names.split(",") if name] for names in (one, zero)]
        if all(share in (None, "") for side in shares for share in side):
            return None
        first, second = (any(float(share or 0) >= threshold for share in side) for side in shares)
        undecided = first == second and (first or zero)
        return None if undecided else int(first)

    return value


FeatureName = Literal["length", "pattern", "uppercase", "overlap", "shorter", "column", "identity"]
_MAKERS: tuple[Callable[..., Predicate], ...] = (
    length,
    pattern,
    uppercase,
    overlap,
    shorter,
    column,
    identity,
)
FEATURES = {make.__name__: make for make in _MAKERS}
"""Name to a function that takes the feature's options and returns its predicate."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How one of the two features is put into words; empty fields have no wording."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # no misspelt field

    key: str = ""
    words: tuple[str, str] | None = None
    """The label words of 0 and of 1."""
    instruction: str = ""
    explanation: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """A feature in plain words, of which a wording can be made."""

    key: str
    words: tuple[str, str] = ("no", "yes")
    zero: str
    """A sentence without its full stop, true where the feature is 0."""
    one: str

    def wording(self) -> Wording:
        """
        >>> Meaning(key="Loud?", zero="nobody shouts", one="somebody shouts").wording().instruction
        'Write 1 when somebody shouts, and 0 when nobody shouts.'
        """
        zero, one = (f"Here, {fact}, so the {ANSWER}{i}." for i, fact in enumerate((self.zero, self.one)))
        return Wording(self.key, self.words, f"Write 1 when {self.one}, and 0 when {self.zero}.", (zero, one))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a task is made of labelled texts."""

    feature: FeatureName
    """h2."""
    options: dict[str, Any] = field(default_factory=dict)
    h1: Meaning | None = None
    h2: Meaning | None = None
    rows: Rows = field(default_factory=Rows)
    family: str = ""
    """What the paper counts it with: NLI, SA, TC or QA."""

    @property
    def meanings(self) -> dict[Hypothesis, Meaning]:
        """Those that are stated."""
        both: dict[Hypothesis, Meaning | None] = {"h2": self.h2, "h1": self.h1}
        return {h: meaning for h, meaning in both.items() if meaning}

    def predicate(self) -> Predicate:
        """The feature with its options, whose numbers may be text; DataError for options that do not fit."""
        from pydantic import ValidationError, validate_call

        try:
            return validate_call(FEATURES[self.feature])(**self.options)
        except ValidationError as error:
            first = error.errors()[0]
            raise DataError(f"feature {self.feature}, {first['loc'][-1]}: {first['msg']}") from None


@cache
def recipes() -> dict[str, Recipe]:
    """The paper's tasks and the embedded ones, by name."""
    return check(load_yaml(CONFIGURATION, dict[str, Any])["tasks"], dict[str, Recipe], str(CONFIGURATION))


def family(task: str) -> str:
    """NLI, SA, TC or QA of the paper's tasks, `stories` of the embedded ones, "" of others."""
    return recipes()[task].family if task in recipes() else ""


def feature_of(task: str) -> str:
    """The feature in the name of one of the paper's tasks: what it has one row for in its tables.

    >>> feature_of("nli_entailment_genre_gov_fic"), feature_of("my_task")
    ('genre', '')
    """
    return task.split("_")[2] if family(task) in ("NLI", "SA", "TC", "QA") else ""


def own_wordings(task: str, stated: Mapping[Hypothesis, Meaning]) -> dict[Hypothesis, Wording]:
    """Our wording of a task's two features, of the meanings that its file states or that its name is known
    for; an empty one where there is none."""
    known = recipes()[task].meanings if task in recipes() else {}
    meanings = {**known, **stated}
    return {h: meanings[h].wording() if h in meanings else Wording() for h in HYPOTHESES}


def read_wordings(path: str | Path) -> dict[str, dict[Hypothesis, Wording]]:
    """The user's file (see the module). DataError names the file, the task and the field."""
    document = load_json(path, dict[str, dict[Hypothesis, Wording]])
    for task, sides in document.items():
        for h, wording in sides.items():
            for i, text in enumerate(wording.explanation or ()):
                if not text.rstrip().rstrip(".").endswith(f"{ANSWER}{i}"):
                    where = f"{path}, task {task!r}, {h}"
                    raise DataError(f'{where}: explanation {i} must end in "{ANSWER}{i}.", found {text!r}')
    return document


def chosen_wordings(
    task: str, own: Mapping[Hypothesis, Wording], given: Mapping[str, Mapping[Hypothesis, Wording]]
) -> dict[Hypothesis, Wording]:
    """The user's wording of a task, filled up field by field with ours."""
    stated = {h: asdict(wording) for h, wording in given.get(task, given.get("*", {})).items()}
    return {h: replace(own[h], **{k: v for k, v in stated.get(h, {}).items() if v}) for h in HYPOTHESES}
