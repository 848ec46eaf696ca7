"""Which of two features does a classifier learn? Tasks whose demonstrations do not tell, and whose tests do.

    from data_modules.tasks.feature_bias import read_task, build_task, write_task
    task = read_task("boolq_answer_qword.json")        # a file in the released schema
    task = build_task("mine", labelled_texts, Recipe(feature="uppercase"))

Every text has two features, each 1 or 0: h1, the label, and h2. Cells are named `h1_h2`: in 1_1 and 0_0 both
agree (demonstrations come from there), in 1_0 and 0_1 they differ (the disambiguating tests). Probes spec C1,
C2.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from data_modules.schema import ChoiceQuestion
from data_modules.tasks.features import Hypothesis, Meaning, Recipe
from data_modules.tasks.labelled_texts import LabelledText
from data_modules.tasks.predicate_argument import Text
from storage.command_line import Count
from storage.errors import DataError
from storage.files import write_text
from storage.json_files import load_json

Cell = str
AGREEING: tuple[Cell, ...] = ("1_1", "0_0")
DIFFERING: tuple[Cell, ...] = ("1_0", "0_1")
CELLS = (*AGREEING, *DIFFERING)


@dataclass(frozen=True)
class Sizes:
    """texts of a cell

    Args:
        seed: of their order.
        cap: most tests of a cell.
        max_demos: most demonstrations of a cell.
        min_demos: demonstrations that a cell keeps before it gets any test.
    """

    seed: int = 0
    cap: Count = 600
    max_demos: Count = 10_000
    min_demos: Count = 32


@dataclass(frozen=True, slots=True)
class TaskExample:
    """One text of a cell."""

    id: str
    question: str
    """What a model reads; pairs are two lines."""
    answer: str
    """h1: "0" or "1"."""
    split: Cell

    @property
    def name(self) -> str:
        """Unique within its task."""
        return f"{self.split}/{self.id}"


Examples = tuple[TaskExample, ...]


@dataclass(frozen=True, slots=True)
class FeatureTask:
    """A task with its cells."""

    name: str
    demos: Mapping[Cell, Examples]
    """Of the agreeing cells."""
    tests: Mapping[Cell, Examples]
    """Of all cells."""
    meanings: Mapping[Hypothesis, Meaning] = field(default_factory=dict)
    """h1 and h2 in words, where the file states them."""
    made_from: Mapping[str, Any] = field(default_factory=dict)


class _Example(TypedDict):
    id: str | int
    question: Text
    answer: str | int
    split: NotRequired[str]


class _Task(TypedDict):
    dataset: Text
    features: NotRequired[dict[Hypothesis, Meaning]]
    made_from: NotRequired[dict[str, Any]]
    demos_1_1: list[_Example]
    demos_0_0: list[_Example]
    testset_1_1: list[_Example]
    testset_0_0: list[_Example]
    testset_1_0: Annotated[list[_Example], Field(min_length=1)]
    testset_0_1: Annotated[list[_Example], Field(min_length=1)]


def read_task(path: str | Path) -> FeatureTask:
    """A task from a file in the released schema; see also `own_tasks.open_task`.

    Raises:
        DataError: a field is missing or of the wrong type; a label is not that of its cell; a disambiguating
            cell is empty. The error names file, list and index.
    """
    document: Any = load_json(path, _Task)

    def examples(key: str, cell: Cell) -> Examples:
        for i, row in enumerate(document[key]):
            if (str(row["answer"]), row.get("split", cell)) != (cell[0], cell):
                raise DataError(f"{path}, {key}[{i}]: the label must be {cell[0]} and the split {cell}")
        return tuple(TaskExample(str(x["id"]), x["question"], cell[0], cell) for x in document[key])

    demos = {cell: examples(f"demos_{cell}", cell) for cell in AGREEING}
    tests = {cell: examples(f"testset_{cell}", cell) for cell in CELLS}
    stated = document.get("features", {}), document.get("made_from", {})
    return FeatureTask(document["dataset"], demos, tests, *stated)


def write_task(path: str | Path, task: FeatureTask) -> None:
    """The released schema, and what the features mean beside it; whole or not at all."""
    lists = {f"demos_{cell}": task.demos[cell] for cell in AGREEING}
    lists |= {f"testset_{cell}": task.tests[cell] for cell in CELLS}
    document: dict[str, Any] = {"dataset": task.name}
    if task.meanings:
        document["features"] = {h: asdict(meaning) for h, meaning in task.meanings.items()}
    if task.made_from:
        document["made_from"] = task.made_from
    document |= {key: [asdict(example) for example in examples] for key, examples in lists.items()}
    write_text(Path(path), json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def build_task(
    name: str,
    labelled_texts: Iterable[LabelledText],
    recipe: Recipe,
    sizes: Sizes = Sizes(),
    made_from: Mapping[str, Any] | None = None,
) -> FeatureTask:
    """The cells of a labelled set: each shuffled, the first texts tests, the next demonstrations.

    A text that occurs twice counts once; one that belongs to neither side of the feature is left out; both
    are counted in `made_from`, which is written into the file besides.

    Raises:
        DataError: the feature needs a second text or a column that is not there, or a cell is empty.
    """
    h2, pairs = recipe.predicate(), recipe.feature in ("overlap", "shorter")
    texts: dict[Cell, set[str]] = {cell: set() for cell in CELLS}
    seen, counts = set[str](), Counter(texts=0, on_neither_side=0, repeated=0)
    for row in labelled_texts:
        counts["texts"] += 1
        text = row.part("both")
        if text in seen:
            counts["repeated"] += 1
            continue
        seen.add(text)
        try:
            if pairs and not row.second:
                raise ValueError("it compares two texts, and this is a single one")
            side = h2(row)
        except (KeyError, ValueError, TypeError) as error:
            reason = f"there is no column {error}" if isinstance(error, KeyError) else error
            raise DataError(f"{row.id}: the feature {recipe.feature} cannot be told: {reason}") from None
        if side is None:
            counts["on_neither_side"] += 1
        else:
            texts[f"{row.label}_{side}"].add(text)
    demos: dict[Cell, Examples] = dict.fromkeys(AGREEING, ())
    tests: dict[Cell, Examples] = {}
    for cell in CELLS:
        drawn = sorted(texts[cell])
        Random(f"feature-bias/{name}/{sizes.seed}/{cell}").shuffle(drawn)
        if not drawn:
            counted = ", ".join(f"{len(texts[c])} in {c}" for c in CELLS)
            raise DataError(f"{name}: no text in cell {cell} (label_feature) of {recipe.feature}: {counted}")
        spare = len(drawn) - sizes.min_demos if cell in AGREEING else sizes.cap
        most = min(sizes.cap, max(0, spare))
        examples = tuple(TaskExample(str(i), text, cell[0], cell) for i, text in enumerate(drawn))
        tests[cell] = examples[:most]
        if cell in AGREEING:
            demos[cell] = examples[most : most + sizes.max_demos]
    about = {"feature": recipe.feature, "options": recipe.options, "seed": sizes.seed, **counts}
    return FeatureTask(name, demos, tests, recipe.meanings, {**(made_from or {}), **about})


def choice_rows(task: FeatureTask, examples: Iterable[TaskExample]) -> list[ChoiceQuestion]:
    """The texts as questions with the digits to choose from, for a fine-tuned classifier."""
    name, digits = task.name, ("0", "1")
    return [
        ChoiceQuestion(f"{name}/{x.name}", x.question, digits, int(x.answer), f"{name}/{x.split}")
        for x in examples
    ]


def training_examples(task: FeatureTask, seed: int = 0) -> list[TaskExample]:
    """Demonstrations to train on, both labels equally often; DataError where a label has none."""
    rng = Random(f"feature-bias/{task.name}/train/{seed}")
    each = min(len(task.demos[cell]) for cell in AGREEING)
    if not each:
        raise DataError(f"{task.name}: a label has no demonstration to train on")
    chosen = [example for cell in AGREEING for example in rng.sample(task.demos[cell], each)]
    rng.shuffle(chosen)
    return chosen
