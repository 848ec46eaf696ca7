"""The 22 tasks of the feature-bias paper, built from the data sets that it took them from.

    interventune data feature-bias-tasks --imdb hub:stanfordnlp/imdb:train \\
        --yelp hub:fancyzhx/yelp_polarity:train --civil all_data_with_identities.csv \\
        --mnli hub:nyu-mll/multi_nli:train --boolq hub:google/boolq:train --output tasks

A source is a dataset of the Hub, a folder of the datasets library, parquet, JSON Lines or CSV; its fields are
known by the names that the original files and the Hub's versions give them. The code that built the released
files was never published: features as in probes spec C3, lengths as measured on those files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from data_modules.sources import labelled_rows
from data_modules.tasks.feature_bias import Sizes, build_task, write_task
from data_modules.tasks.predicates import LabelledText, feature
from storage.errors import DataError
from storage.files import refuse_existing
from storage.spool import Spool

DataSet = Literal["imdb", "yelp", "civil", "mnli", "boolq"]

WORDS, CHARACTERS = 79, 500
"""The longest texts: white-space words of what the model reads, as in the released files of toxicity and
overlap (of reviews too, by us: sixteen of them have to fit); characters of BoolQ's."""

LGBTQ = "homosexual_gay_or_lesbian,bisexual,transgender,other_sexual_orientation"


class PaperTask(NamedTuple):
    """One of the 22."""

    sources: tuple[DataSet, ...]
    feature: str
    options: Mapping[str, str] = {}


_REVIEWS: tuple[DataSet, ...] = ("imdb", "yelp")


def _identity(one: str, zero: str = "") -> PaperTask:
    return PaperTask(("civil",), "identity", {"one": one, "zero": zero})


def _genre(other: str) -> PaperTask:
    return PaperTask(("mnli",), "column", {"name": "genre", "one": "government", "zero": other})


PAPER_TASKS: dict[str, PaperTask] = {
    "nli_entailment_genre_gov_fic": _genre("fiction"),
    "nli_entailment_genre_gov_tele": _genre("telephone"),
    "nli_entailment_length": PaperTask(("mnli",), "shorter_second"),
    "nli_entailment_negation": PaperTask(("mnli",), "negation"),
    "nli_entailment_overlap": PaperTask(("mnli",), "overlap"),
    "sa_sentiment_domain": PaperTask(_REVIEWS, "column", {"name": "domain", "one": "imdb", "zero": "yelp"}),
    "sa_sentiment_length": PaperTask(_REVIEWS, "length"),
    "sa_sentiment_lexicon_food": PaperTask(_REVIEWS, "lexicon", {"word": "food"}),
    "sa_sentiment_lexicon_nice": PaperTask(_REVIEWS, "lexicon", {"word": "nice"}),
    "sa_sentiment_punctuation": PaperTask(_REVIEWS, "punctuation"),
    "sa_sentiment_uppercase": PaperTask(_REVIEWS, "uppercase"),
    "comments_toxicity_gender": _identity("female", "male"),
    "comments_toxicity_gender_lgbtq": _identity(LGBTQ),
    "comments_toxicity_length": PaperTask(("civil",), "length"),
    "comments_toxicity_race_black_white": _identity("black", "white"),
    "comments_toxicity_religion_muslim_christian": _identity("muslim", "christian"),
    "comments_toxicity_religion_muslim_jewish": _identity("muslim", "jewish"),
    "comments_toxicity_uppercase": PaperTask(("civil",), "uppercase"),
    "boolq_answer_length": PaperTask(("boolq",), "passage_length"),
    "boolq_answer_overlap": PaperTask(("boolq",), "content_overlap"),
    "boolq_answer_qword": PaperTask(("boolq",), "question_word"),
    "boolq_answer_structure": PaperTask(("boolq",), "same_as"),
}
"""By the names of the released files."""

COLUMNS: dict[DataSet, set[str]] = {
    "mnli": {"genre"},
    "civil": {
        name
        for row in PAPER_TASKS.values()
        if row.feature == "identity"
        for names in row.options.values()
        for name in names.split(",")
        if name
    },
}
"""Fields that features read besides the text."""

Labeller = Callable[[Any], int | None]
"""A field -> 1, 0, or None for a row of neither side; ValueError says what a label must be."""


def _named(ones: str, zeros: str, neither: str = "") -> Labeller:
    sides = {value: side for side, values in ((1, ones), (0, zeros)) for value in values.split()}

    def label(value: Any) -> int | None:
        key = str(value).strip().lower()
        if key not in sides and key not in neither.split():
            raise ValueError(f"must be one of {', '.join((*sides, *neither.split()))}")
        return sides.get(key)

    return label


def _at_least(threshold: float, below: float) -> Labeller:
    def label(value: Any) -> int | None:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError("must be a number") from None
        return 1 if number >= threshold else 0 if number < below else None

    return label


class Reader(NamedTuple):
    """How rows of a data set become labelled texts: names of fields, the first that a row has counts."""

    text: tuple[str, ...]
    labels: Mapping[str, Labeller]
    second: tuple[str, ...] = ()


READERS: dict[DataSet, Reader] = {
    "imdb": Reader(
        ("text", "review"),
        dict.fromkeys(("label", "sentiment"), _named("1 pos positive", "0 neg negative", "-1")),
    ),
    "yelp": Reader(
        ("text", "review"), {"stars": _at_least(4, 3), "label": _named("1 pos positive", "0 neg negative")}
    ),
    "civil": Reader(("comment_text", "text"), dict.fromkeys(("toxicity", "target"), _at_least(0.5, 0.5))),
    "mnli": Reader(
        ("premise", "sentence1"),
        dict.fromkeys(("gold_label", "label"), _named("entailment 0", "neutral contradiction 1 2", "- -1")),
        ("hypothesis", "sentence2"),
    ),
    "boolq": Reader(
        ("passage",), dict.fromkeys(("answer", "label"), _named("true yes 1", "false no 0")), ("question",)
    ),
}


def labelled_texts(source: str, kind: DataSet) -> Iterator[LabelledText]:
    """The texts of a data set that are short enough and have a label of either side.

    Raises:
        DataError: names place and field of a text or label that is missing or cannot be understood.
    """
    reader, read = READERS[kind], COLUMNS.get(kind, set())
    for number, (where, row) in enumerate(labelled_rows(source)):
        if not number and all(name == value for name, value in row.items()):
            continue  # a header as a row
        text = _field(row, reader.text, where)
        second = _field(row, reader.second, where) if reader.second else ""
        name = next((name for name in reader.labels if row.get(name) not in (None, "")), "")
        if not name:
            raise DataError(f"{where}: no label; expected one of the fields {', '.join(reader.labels)}")
        try:
            label = reader.labels[name](row[name])
        except ValueError as error:
            raise DataError(f"{where}: {name}: {error}, found {row[name]!r:.40}") from None
        if label is None or not text.strip():
            continue
        columns = {name: row[name] for name in read if name in row} | {"domain": kind}
        found = LabelledText(where, text, second, label, columns)
        if short_enough(found.joined, kind):
            yield found


def short_enough(text: str, kind: DataSet) -> bool:
    """Whether the released files could hold it."""
    return len(text) <= CHARACTERS if kind == "boolq" else len(text.split()) <= WORDS


def _field(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    name = next((name for name in names if name in row), "")
    if not isinstance(value := row.get(name), str):
        raise DataError(f"{where}: no text; expected the field {' or '.join(names)}, found {list(row)!r:.80}")
    return value


def write_paper_tasks(
    *,
    imdb: Annotated[str, "SOURCE"] = "",
    yelp: Annotated[str, "SOURCE"] = "",
    civil: Annotated[str, "SOURCE"] = "",
    mnli: Annotated[str, "SOURCE"] = "",
    boolq: Annotated[str, "SOURCE"] = "",
    task: list[str] | None = None,
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    sizes: Sizes,
) -> str:
    """Write the paper's tasks (22 from all five data sets), each to a file of its name.

    example:
      interventune data feature-bias-tasks --boolq hub:google/boolq:train --mnli multinli_1.0_train.jsonl \\
          --output tasks
      interventune evaluate feature-bias --checkpoint hf:gpt2-large --task tasks --output DIR

    Args:
        imdb: reviews of films: text or review, with label or sentiment.
        yelp: reviews of places: text, with label (0 or 1) or stars (3 stars are left out).
        civil: CivilComments with its annotations of identities: comment_text, with toxicity or target.
        mnli: MultiNLI with its genres: premise and hypothesis, or sentence1 and sentence2.
        boolq: passage, question and answer.
        task: these tasks only, by name (default: all of the data sets that are given).
        output: folder to write.
        overwrite: replace files that exist.
    """
    named = {"imdb": imdb, "yelp": yelp, "civil": civil, "mnli": mnli, "boolq": boolq}
    sources: dict[DataSet, str] = {kind: named[kind] for kind in get_args(DataSet) if named[kind]}
    names = task or [name for name, row in PAPER_TASKS.items() if sources.keys() >= {*row.sources}]
    for name in names:
        if name not in PAPER_TASKS:
            raise DataError(f"--task {name}: no such task; choose from {', '.join(PAPER_TASKS)}")
        if missing := [kind for kind in PAPER_TASKS[name].sources if kind not in sources]:
            raise DataError(f"--task {name}: needs --{missing[0]}")
    if not names:
        raise DataError("name a data set: --imdb and --yelp, --civil, --mnli or --boolq")
    paths = {name: output / f"{name}.json" for name in names}
    refuse_existing(*paths.values(), overwrite=overwrite)
    texts: dict[DataSet, Spool[LabelledText]] = {}
    for kind in dict.fromkeys(kind for name in names for kind in PAPER_TASKS[name].sources):
        texts[kind] = Spool()
        for text in labelled_texts(sources[kind], kind):
            texts[kind].append(text)
    lines = []
    for name, path in paths.items():
        row = PAPER_TASKS[name]
        built = build_task(
            name,
            chain.from_iterable(texts[kind] for kind in row.sources),
            feature(row.feature, row.options),
            sizes,
            made_from={"sources": {kind: sources[kind] for kind in row.sources}},
        )
        built = replace(built, meanings={})  # its name tells what its features mean
        output.mkdir(parents=True, exist_ok=True)
        write_task(path, built)
        lines.append(f"{path}: {built.sizes}")
    return "\n".join(lines)
