"""Which of two features does a classifier learn? Tasks whose demonstrations do not tell, and whose tests do.

    from data_modules.tasks.feature_bias import read_task, build_task, write_task
    task = read_task("boolq_answer_qword.json")        # a file in the released schema
    task = build_task("mine", rows, feature("uppercase"))

Every text has two features with the same classes: h1, the label, and h2. Cells are named `h1_h2`: in 1_1 and
0_0 both agree (demonstrations come from there), in 1_0 and 0_1 they differ (the disambiguating tests). Probes
spec C1, C2. The paper has two classes, 1 and 0; a task may have up to ten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from data_modules.schema import ChoiceQuestion
from data_modules.tasks.predicate_argument import Text
from data_modules.tasks.predicates import Feature, LabelledText
from data_modules.tasks.wording import Hypothesis, Meaning, feature_meaning
from storage.command_line import Count
from storage.errors import DataError
from storage.files import write_text
from storage.json_files import field as checked_field
from storage.json_files import load_json

Cell = str


def agreeing_cells(classes: int) -> tuple[Cell, ...]:
    """
    >>> agreeing_cells(2), agreeing_cells(3)
    (('1_1', '0_0'), ('2_2', '1_1', '0_0'))
    """
    return tuple(f"{k}_{k}" for k in reversed(range(classes)))


def differing_cells(classes: int) -> tuple[Cell, ...]:
    """
    >>> differing_cells(2)
    ('1_0', '0_1')
    """
    ordered = [*reversed(range(classes))]
    return tuple(f"{a}_{b}" for a in ordered for b in ordered if a != b)


MOST_CLASSES = 10


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


RELEASED = Sizes()
"""As in the released files, but that these keep as few as 10 demonstrations of a cell: 32 are 16 shots from
three seeds."""


def digits(classes: int) -> tuple[str, ...]:
    """The label words of the baseline: 0, 1, ..."""
    return tuple(map(str, range(classes)))


@dataclass(frozen=True, slots=True)
class TaskExample:
    """One text of a cell."""

    id: str
    question: str
    """What a model reads; pairs are two lines."""
    answer: str
    """h1: "0", "1", ..."""
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
    meanings: Mapping[Hypothesis, Meaning] = field(default_factory=dict)
    """h1 and h2 in words, where the file states them."""
    made_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.demos)

    @property
    def agreeing_cells(self) -> tuple[Cell, ...]:
        """Where demonstrations come from."""
        return agreeing_cells(self.classes)

    @property
    def differing_cells(self) -> tuple[Cell, ...]:
        """Where tests tell the features apart."""
        return differing_cells(self.classes)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All."""
        return (*self.agreeing_cells, *self.differing_cells)

    @property
    def sizes(self) -> str:
        """How many texts are where, in words."""
        parts = (("demonstrations", self.demos), ("tests", self.tests))
        return "; ".join(
            f"{what} {', '.join(f'{len(examples)} in {cell}' for cell, examples in cells.items())}"
            for what, cells in parts
        )

    def agreeing(self) -> Iterator[TaskExample]:
        """All texts on which both features agree."""
        for part in (self.demos, self.tests):
            for cell in self.agreeing_cells:
                yield from part[cell]


class _Example(TypedDict):
    id: str | int
    question: Text
    answer: str | int
    split: NotRequired[Any]


@with_config(ConfigDict(extra="allow"))  # the cells
class _Task(TypedDict):
    dataset: Text
    features: NotRequired[dict[Hypothesis, Meaning]]
    made_from: NotRequired[dict[str, Any]]


def read_task(path: str | Path) -> FeatureTask:
    """A task from a file in the released schema; see also `own_tasks.open_task`.

    Raises:
        DataError: a field is missing or of the wrong type; a label is not that of its cell; a disambiguating
            cell is empty. The error names file, list and index.
    """
    document = load_json(path, _Task)
    classes = max(2, sum(f"demos_{k}_{k}" in document for k in range(MOST_CLASSES)))
    agreeing, differing = agreeing_cells(classes), differing_cells(classes)
    demos = {cell: _examples(document, f"demos_{cell}", cell, path) for cell in agreeing}
    tests = {cell: _examples(document, f"testset_{cell}", cell, path) for cell in (*agreeing, *differing)}
    for cell in differing:
        if not tests[cell]:
            raise DataError(f"{path}: testset_{cell} is empty, so nothing can tell the two features apart")
    return FeatureTask(
        document["dataset"], demos, tests, document.get("features", {}), document.get("made_from", {})
    )


def _examples(document: Mapping[str, Any], key: str, cell: Cell, path: str | Path) -> Examples:
    examples: dict[str, TaskExample] = {}
    for i, record in enumerate(checked_field(document, key, list[_Example], str(path))):
        where = f"{path}, {key}[{i}]"
        answer = str(record["answer"])
        if answer != cell[0]:
            raise DataError(f"{where}: the label is {answer}, but in {key} it must be {cell[0]}")
        if (split := record.get("split", cell)) != cell:
            raise DataError(f"{where}: says split {split!r}, but stands in {key}")
        name = str(record["id"])
        if name in examples:
            raise DataError(f"{where}: the id {name!r} is there twice")
        examples[name] = TaskExample(name, record["question"], answer, cell)
    return tuple(examples.values())


def write_task(path: str | Path, task: FeatureTask) -> None:
    """The released schema, and what the features mean beside it; whole or not at all."""
    lists = {f"demos_{cell}": task.demos[cell] for cell in task.agreeing_cells}
    lists |= {f"testset_{cell}": task.tests[cell] for cell in task.cells}
    document: dict[str, Any] = {"dataset": task.name}
    if task.meanings:
        document["features"] = {h: meaning.as_row() for h, meaning in task.meanings.items()}
    if task.made_from:
        document["made_from"] = task.made_from
    document |= {key: [asdict(example) for example in examples] for key, examples in lists.items()}
    write_text(Path(path), json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def build_task(
    name: str,
    rows: Iterable[LabelledText],
    feature: Feature,
    sizes: Sizes = RELEASED,
    *,
    h1: Meaning | None = None,
    made_from: Mapping[str, Any] | None = None,
    classes: int = 2,
) -> FeatureTask:
    """The cells of a labelled set: each shuffled, the first texts tests, the next demonstrations.

    A text that occurs twice counts once; one that belongs to neither side of the feature is left out; both
    are counted in `made_from`.

    Args:
        name: of the task.
        rows: the labelled texts.
        feature: h2.
        sizes: how many texts, and the seed of their order.
        h1: what the label means, for prompts.
        made_from: what is written into the file besides.
        classes: of both features: 0, 1, ...

    Raises:
        DataError: the feature needs pairs and there are none, a label or a value of the feature is none of
            the classes, or a cell is empty.
    """
    agreeing = agreeing_cells(classes)
    cells = (*agreeing, *differing_cells(classes))
    texts: dict[Cell, set[str]] = {cell: set() for cell in cells}
    seen, counts = set[str](), Counter(texts=0, on_neither_side=0, repeated=0)
    for row in rows:
        if feature.pair and not row.second:
            raise DataError(
                f"row {row.id}: the feature {feature.name} needs pairs (premise and hypothesis, or passage "
                "and question), and this is a single text"
            )
        if row.label not in range(classes):
            wanted = "0 or 1" if classes == 2 else f"one of 0 to {classes - 1}"
            raise DataError(f"row {row.id}: the label must be {wanted}, found {row.label!r}")
        counts["texts"] += 1
        text = row.joined
        if text in seen:
            counts["repeated"] += 1
        elif (other := feature.value(row)) is None:
            counts["on_neither_side"] += 1
        else:
            if other >= classes:
                raise DataError(
                    f"row {row.id}: feature {feature.name} says {other}, beyond {classes} classes"
                )
            texts[f"{row.label}_{other}"].add(text)
        seen.add(text)
    demos: dict[Cell, Examples] = dict.fromkeys(agreeing, ())
    tests: dict[Cell, Examples] = {}
    for cell in cells:
        drawn = sorted(texts[cell])
        Random(f"feature-bias/{name}/{sizes.seed}/{cell}").shuffle(drawn)
        if not drawn:
            counted = ", ".join(f"{len(texts[c])} in {c}" for c in cells)
            raise DataError(
                f"{name}: no text in cell {cell} (label_feature) of feature {feature.name}: {counted}"
            )
        spare = len(drawn) - sizes.min_demos if cell in agreeing else sizes.cap
        most = min(sizes.cap, max(0, spare))
        examples = tuple(TaskExample(str(i), text, cell[0], cell) for i, text in enumerate(drawn))
        tests[cell] = examples[:most]
        if cell in agreeing:
            demos[cell] = examples[most : most + sizes.max_demos]
    about = {"feature": feature.name, "options": dict(feature.options), "seed": sizes.seed, **counts}
    meanings: dict[Hypothesis, Meaning] = {}
    if classes == 2:  # what we have words for
        meanings["h2"] = feature_meaning(feature)
    if h1:
        meanings["h1"] = h1
    return FeatureTask(name, demos, tests, meanings, {**(made_from or {}), **about})


def choice_rows(
    task: FeatureTask, examples: Iterable[TaskExample], words: Sequence[str] | None = None
) -> list[ChoiceQuestion]:
    """The texts as questions with a label word for each class to choose from (the digits unless given), for a
    fine-tuned classifier. ValueError for another number of words."""
    choices = label_words(words, task.classes)
    return [
        ChoiceQuestion(f"{task.name}/{x.name}", x.question, choices, int(x.answer), f"{task.name}/{x.split}")
        for x in examples
    ]


def label_words(words: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """The words that were given, or the digits; ValueError unless there are as many different ones as
    classes."""
    if words is None:
        return digits(classes)
    if len(words) != classes:
        raise DataError(f"--words: {len(words)} words, but the task has {classes} classes")
    if repeated := [word for i, word in enumerate(words) if word in words[:i]]:
        raise DataError(f"--words: different words are needed, got {repeated[0]!r} twice")
    return tuple(words)


def training_examples(
    task: FeatureTask, *, agreement_tests: float = 0.0, size: int = 0, seed: int = 0
) -> tuple[list[TaskExample], FeatureTask]:
    """Underspecified texts to train on, all labels equally often, and the task without them.

    Args:
        task: gives the demonstrations.
        agreement_tests: share of the agreeing tests of each cell to train on too (they have gone from the
            task that is returned): released files have as few as 10 demonstrations of a label.
        size: most texts; 0 for all.
        seed: of the choice among the more frequent label, and of the order.

    Raises:
        DataError: a label has no text.
    """
    rng = Random(f"feature-bias/{task.name}/train/{seed}")
    pools: dict[Cell, list[TaskExample]] = {}
    tests = dict(task.tests)
    for cell in task.agreeing_cells:
        taken = int(agreement_tests * len(task.tests[cell]))
        pools[cell] = [*task.demos[cell], *task.tests[cell][:taken]]
        tests[cell] = task.tests[cell][taken:]
        if not pools[cell]:
            raise DataError(f"{task.name}: no demonstration has the label {cell[0]} to train on")
    each = min(map(len, pools.values()))
    each = min(each, max(1, size // task.classes)) if size else each
    chosen = [x for cell in task.agreeing_cells for x in rng.sample(pools[cell], each)]
    rng.shuffle(chosen)
    return chosen, replace(task, tests=tests)
