"""What features mean in words: keys, label words, instructions and explanations for prompts.

Our own wording by default. The papers' strings, or anybody's, come from a JSON file:

    {"boolq_answer_qword": {
        "h1": {"key": "Answer?", "words": ["no", "yes"], "instruction": "...", "explanation": ["...", "..."]},
        "h2": {...}}}

Words and explanations stand in the order of the labels: first what goes with 0, then with 1. `*` in place of
a task's name serves all tasks that are not named. An explanation is what follows the key in a demonstration;
it ends in "answer is 0." or "answer is 1.".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_modules.tasks.predicates import Feature
from storage.errors import DataError
from storage.json_files import load_json

Hypothesis = Literal["h1", "h2"]
HYPOTHESES: tuple[Hypothesis, ...] = ("h1", "h2")
"""The label, and the other feature."""
ANSWER = "answer is "
"""What stands before the label in an explanation; the prediction is what follows it."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How one of the two features is put into words; empty fields have no wording."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # no misspelt field

    key: str = ""
    words: tuple[str, ...] | None = None
    """The label words of 0, of 1, ..."""
    instruction: str = ""
    explanation: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Meaning:
    """A feature in plain words, of which a wording can be made."""

    key: str
    zero: str
    """A sentence without its full stop, true where the feature is 0."""
    one: str
    words: tuple[str, str] = ("no", "yes")

    def as_row(self) -> dict[str, Any]:
        """What files say of it."""
        return {"key": self.key, "words": self.words, "zero": self.zero, "one": self.one}

    def wording(self) -> Wording:
        """
        >>> Meaning("Loud?", "nobody shouts", "somebody shouts").wording().instruction
        'Write 1 when somebody shouts, and 0 when nobody shouts.'
        """
        zero, one = (f"Here, {fact}, so the {ANSWER}{i}." for i, fact in enumerate((self.zero, self.one)))
        return Wording(self.key, self.words, f"Write 1 when {self.one}, and 0 when {self.zero}.", (zero, one))


LABELS: dict[str, Meaning] = {
    "boolq": Meaning(
        "Reply:", "the question is to be answered with no", "the question is to be answered with yes"
    ),
    "comments": Meaning("Hurtful:", "the comment is polite enough", "the comment is toxic"),
    "nli": Meaning("Follows:", "the second sentence need not be true", "the second sentence must be true"),
    "sa": Meaning("Opinion:", "the writer did not like it", "the writer liked it", ("bad", "good")),
    "stories": Meaning("Opinion:", "the thing is found bad", "the thing is found good", ("bad", "good")),
    "stories_pair": Meaning(
        "Follows:", "the second sentence need not be true", "the second sentence must be true"
    ),
}
"""What h1 means, by family of tasks."""

_OTHERS = {
    "boolq_answer_length": Meaning(
        "Passage:", "the passage is brief", "the passage is long", ("brief", "long")
    ),
    "boolq_answer_overlap": Meaning(
        "All found:", "a word of the question is not in the passage", "the passage has the question's words"
    ),
    "boolq_answer_qword": Meaning(
        "Begins:", "the question begins with a form of do", "the question begins with is or was", ("do", "is")
    ),
    "boolq_answer_structure": Meaning(
        "Compares:", "the question does not say same as", "the question says same as"
    ),
    "nli_entailment_genre_gov_fic": Meaning(
        "From:", "the text is from a novel", "the text is from a government office", ("novel", "office")
    ),
    "nli_entailment_genre_gov_tele": Meaning(
        "From:", "the text is from a phone call", "the text is from a government office", ("phone", "office")
    ),
    "nli_entailment_length": Meaning(
        "Gets shorter:", "the second sentence is the longer one", "the second sentence is the shorter one"
    ),
    "nli_entailment_negation": Meaning(
        "Denies:", "the second sentence has no negation", "the second sentence has a negation"
    ),
    "nli_entailment_overlap": Meaning(
        "All found:",
        "a word of the second sentence is not in the first",
        "the first sentence has all words of the second",
    ),
    "domain": Meaning(
        "Reviewed:", "the review is of a shop or restaurant", "the review is of a film", ("place", "film")
    ),
    "lexicon_food": Meaning("Says food:", "the word food does not occur", "the word food occurs"),
    "lexicon_nice": Meaning("Says nice:", "the word nice does not occur", "the word nice occurs"),
    "gender_lgbtq": Meaning("Names them:", "nobody is named as LGBTQ", "somebody is named as LGBTQ"),
    "gender": Meaning("About:", "it is about men", "it is about women", ("men", "women")),
    "race_black_white": Meaning(
        "About:", "it is about white people", "it is about black people", ("white", "black")
    ),
    "religion_muslim_christian": Meaning(
        "About:", "it is about Christians", "it is about Muslims", ("Christians", "Muslims")
    ),
    "religion_muslim_jewish": Meaning(
        "About:", "it is about Jews", "it is about Muslims", ("Jews", "Muslims")
    ),
    "length": Meaning("Text:", "the text is long", "the text is brief", ("long", "brief")),
    "punctuation": Meaning(
        "Ends in:", "it ends in a full stop", "it ends in an exclamation mark", ("dot", "mark")
    ),
    "uppercase": Meaning("Shouts:", "no word is in capitals", "a word is in capitals"),
}
"""What h2 means: by the released tasks' own names, or by how they end."""


_ALSO = {
    "sentiment": "sa",
    "imdb": "sa",
    "yelp": "sa",
    "mnli": "nli",
    "civil": "comments",
    "toxicity": "comments",
}
_OF_PAIRS = re.compile("^(boolq_answer|nli_entailment)_")


def family(task: str) -> str:
    """`boolq`, `comments`, `nli`, `sa`, `stories`, or "" for a task of the user's.

    >>> family("nli_entailment_overlap"), family("my_task")
    ('nli', '')
    """
    first = re.split(r"[\W_]", task.lower())[0]
    return _ALSO.get(first, first if first in LABELS else "")


def feature_of(task: str) -> str:
    """The feature in the name of one of the paper's tasks: what it has one row for in its tables.

    >>> feature_of("nli_entailment_genre_gov_fic"), feature_of("comments_toxicity_gender_lgbtq")
    ('genre', 'gender')
    """
    parts = task.split("_")
    return parts[2] if len(parts) > 2 and family(task) in ("nli", "sa", "comments", "boolq") else ""


def feature_meaning(feature: Feature) -> Meaning:
    """What a feature of predicates.py means, with its options."""
    options = feature.options
    if feature.name == "lexicon":
        word = options["word"]
        return Meaning(f"Says {word}:", f"the word {word} does not occur", f"the word {word} occurs")
    if feature.name in ("column", "identity"):
        one, zero = options["one"], options.get("zero", "") or "other"
        return Meaning("Kind:", f"it is of the kind {zero}", f"it is of the kind {one}", (zero, one))
    known = {
        "shorter_second": "nli_entailment_length",
        "overlap": "nli_entailment_overlap",
        "negation": "nli_entailment_negation",
        "question_word": "boolq_answer_qword",
        "content_overlap": "boolq_answer_overlap",
        "same_as": "boolq_answer_structure",
        "passage_length": "boolq_answer_length",
    }
    return _OTHERS[known.get(feature.name, feature.name)]


def own_wordings(task: str, about: Mapping[Hypothesis, Meaning] | None = None) -> dict[Hypothesis, Wording]:
    """Our wording of a task's two features; an empty one where nothing is known of it.

    Args:
        task: the name that its file gives it.
        about: meanings that its file states.
    """
    about, kind = about or {}, family(task)
    # Length means one thing of a review, another of a pair: a feature of another family is none.
    name, like = re.sub(r"\W+", "_", task.lower()), kind if kind in ("boolq", "nli") else ""
    ends = [
        known
        for known in _OTHERS
        if name == known or (kind and family(known) == like and name.endswith(f"_{_OF_PAIRS.sub('', known)}"))
    ]
    meanings = {
        "h1": about.get("h1") or LABELS.get(kind),
        "h2": about.get("h2") or (_OTHERS[max(ends, key=len)] if ends else None),
    }
    return {h: meaning.wording() if (meaning := meanings[h]) else Wording() for h in HYPOTHESES}


def read_wordings(path: str | Path) -> dict[str, dict[Hypothesis, Wording]]:
    """The user's file (see the module). DataError names the file, the task and the field."""
    document = load_json(path, dict[str, dict[Hypothesis, Wording]])
    for task, sides in document.items():
        if not sides:
            raise DataError(f"{path}, task {task!r}: expected an object with h1, h2 or both")
        for h, wording in sides.items():
            where = f"{path}, task {task!r}, {h}"
            for name, texts in (("words", wording.words), ("explanation", wording.explanation)):
                if texts is not None and (len(texts) != 2 or not all(text.strip() for text in texts)):
                    raise DataError(f"{where}: {name} must be two texts, for 0 and for 1, found {texts!r}")
            for i, text in enumerate(wording.explanation or ()):
                if not text.rstrip().rstrip(".").endswith(f"{ANSWER}{i}"):
                    raise DataError(f'{where}: explanation {i} must end in "{ANSWER}{i}.", found {text!r}')
    return document


def chosen_wordings(
    task: str, own: Mapping[Hypothesis, Wording], given: Mapping[str, Mapping[Hypothesis, Wording]]
) -> dict[Hypothesis, Wording]:
    """The user's wording of a task, filled up field by field with ours."""
    stated_wordings = given.get(task, given.get("*", {}))
    stated = {h: {k: v for k, v in asdict(wording).items() if v} for h, wording in stated_wordings.items()}
    return {h: replace(own[h], **stated.get(h, {})) for h in HYPOTHESES}
