"""Which of two features does a model learn? Ambiguous demonstrations, disambiguating tests.

Every text has two features, each 1 or 0: h1, the label, and h2. Cells are named `h1_h2`: in 1_1 and
0_0 both agree (demonstrations come from there), in 1_0 and 0_1 they differ (the disambiguating
tests): Si et al. 2023, sections 2.1 and 3.

The command `feature-bias` writes them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import Field

from interventune.data_modules.sources import parse_stories
from interventune.data_modules.stories.words import WORDS
from interventune.storage.command_line import Count, Source
from interventune.storage.documents import (
    DataError,
    StrPath,
    Values,
    load_json,
    refuse_existing,
    source_digest,
    write_text,
)

from .features import CONFIGURATION, Hypothesis, LabelledText, Recipe, Wording, recipes

AGREEING = ("1_1", "0_0")
DIFFERING = ("1_0", "0_1")
CELLS = (*AGREEING, *DIFFERING)
EMPTY: tuple[Any, ...] = ("", {}, None)
"""Fields that files omit."""
CAP = 100
"""Demonstrations and tests in a cell of the embedded tasks."""


@dataclass(frozen=True)
class TaskExample:
    """One text of a cell."""

    id: str
    question: Annotated[str, Field(pattern=r"\S")]
    """The input of a model; pairs are two lines."""
    answer: str
    """h1: "0" or "1"."""
    split: str
    """Its cell."""

    @property
    def name(self) -> str:
        """Unique within its task."""
        return f"{self.split}/{self.id}"


Examples = tuple[TaskExample, ...]


@dataclass(frozen=True, kw_only=True)
class FeatureTask:
    """A task in the published schema, with the meaning of its features."""

    dataset: str
    """Its name."""
    features: dict[Hypothesis, Wording] = field(default_factory=dict)
    """The wordings of h1 and h2, if known."""
    made_from: Values = field(default_factory=dict)
    demos_1_1: Examples
    demos_0_0: Examples
    testset_1_1: Examples
    testset_0_0: Examples
    testset_1_0: Annotated[Examples, Field(min_length=1)]
    testset_0_1: Annotated[Examples, Field(min_length=1)]

    def __post_init__(self) -> None:
        for cell, examples in (*self.demos.items(), *self.tests.items()):
            for x in examples:
                if (x.answer, x.split) != (cell[0], cell):
                    raise DataError(
                        f"cell {cell}, id {x.id}: the label must be {cell[0]}, the split {cell}"
                    )

    @property
    def demos(self) -> dict[str, Examples]:
        """Demonstrations by agreeing cell."""
        return {cell: getattr(self, f"demos_{cell}") for cell in AGREEING}

    @property
    def tests(self) -> dict[str, Examples]:
        """Tests by cell."""
        return {cell: getattr(self, f"testset_{cell}") for cell in CELLS}


def build_task(
    name: str,
    labelled_texts: Iterable[LabelledText],
    recipe: Recipe,
    *,
    seed: int = 0,
    cap: int = 600,
    max_demos: int = 10_000,
    min_demos: int = 32,
) -> FeatureTask:
    """Make the cells of a labelled set: each is shuffled, at most `cap` texts become tests, the
    next demonstrations; a cell keeps `min_demos` of these before it gets any test.

    Repeated texts count once; texts on neither side of the feature are left out; `made_from` has
    both numbers. DataError: the feature needs a second text or a column that is absent, or a cell
    is empty.
    """
    cell_of = dict[str, str]()
    repeated = 0
    for row in labelled_texts:
        text = row.part()
        if text in cell_of:
            repeated += 1
        else:
            cell_of[text] = f"{row.label}_{recipe.side(row)}"
    sizes = Counter(cell_of.values())
    parts: dict[str, Examples] = {}
    for cell in CELLS:
        texts = sorted(text for text, place in cell_of.items() if place == cell)
        Random(f"feature-bias/{name}/{seed}/{cell}").shuffle(texts)
        if not texts:
            raise DataError(
                f"{name}: no text in cell {cell} (label_feature) of {recipe.feature}: "
                + ", ".join(f"{sizes[c]} in {c}" for c in CELLS)
            )
        examples = tuple(TaskExample(str(i), text, cell[0], cell) for i, text in enumerate(texts))
        most = cap
        if cell in AGREEING:
            most = min(cap, max(0, len(texts) - min_demos))
            parts[f"demos_{cell}"] = examples[most : most + max_demos]
        parts[f"testset_{cell}"] = examples[:most]
    made_from = {
        "feature": recipe.feature,
        "options": recipe.options,
        "seed": seed,
        "texts": len(cell_of) + repeated,
        "on_neither_side": sizes["0_None"] + sizes["1_None"],
        "repeated": repeated,
    }
    return FeatureTask(dataset=name, features=recipe.wordings, made_from=made_from, **parts)


def open_task(source: StrPath) -> FeatureTask:
    """Open a task from a file in the published schema, or `stories:NAME[?seed=N]`. DataError: a
    field is missing or of the wrong type, a label does not match its cell, a disambiguating cell is
    empty; or configs/tasks/feature_bias.yaml lacks the name.
    """
    if not str(source).startswith("stories:"):
        return load_json(source, FeatureTask)
    kind, seed = parse_stories(str(source))
    name = f"stories:{kind}"
    if name not in recipes():
        known = ", ".join(task for task in recipes() if task.startswith("stories:"))
        raise DataError(f"no task {name}; choose from {known}")
    texts = opinions(f"own-task/{kind}/{seed}")
    return build_task(name, texts, recipes()[name], seed=seed, cap=CAP, max_demos=CAP)


def opinions(seed: str) -> Iterator[LabelledText]:
    """Yield 1,200 judgements of things; h1: the thing is good. Label and features are drawn
    independently, so any feature can contradict the label, which can only be read from a word that
    varies.
    """
    rng = Random(seed)
    for index in range(1200):
        label = rng.randrange(2)
        slots = [rng.choice(x) for x in (WORDS.names, WORDS.colours, WORDS.objects, WORDS.places)]
        verdict = WORDS.good if label else WORDS.bad
        text = rng.choice(WORDS.opinions).format(*slots, rng.choice(verdict))
        if rng.random() < 0.5:
            places = rng.choice(WORDS.names), *rng.sample(WORDS.meeting_places, 2)
            text += WORDS.opinion_end.format(*places)
        if rng.random() < 0.5:
            text = f"today {text}"
        if rng.random() < 0.5:
            text = text.replace(slots[2], slots[2].upper())
        text = text[0].upper() + text[1:] + rng.choice(".!")
        yield LabelledText(f"opinion-{index}", (text,), label)


def write_feature_tasks(
    *,
    input: list[Source],
    output: Annotated[Path, "DIR"],
    overwrite: bool = False,
    task: list[str],
    recipe: Annotated[Path, "YAML"] | None = None,
    min_demos: Count = 32,
) -> str:
    """Write tasks that show which of two features a model uses, from labelled texts.

    Example: interventune data feature-bias --task boolq_answer_qword --input boolq.jsonl \\
        --output tasks

    Args:
        input: tables with a label and `text`, or `premise` and `hypothesis`, or `passage` and
            `question`: JSON Lines, CSV, parquet, a folder of a dataset, or hub:NAME:SPLIT.
        output: folder; each task becomes NAME.json.
        overwrite: replace files that exist.
        task: names of tasks in configs/tasks/feature_bias.yaml (the paper's), or in --recipe.
        recipe: your own file in that format.
        min_demos: number of demonstrations to set aside for each label before any text becomes a
            test.
    """
    known = recipes(recipe or CONFIGURATION)
    if unknown := [name for name in task if name not in known]:
        raise DataError(f"--task {unknown[0]}: no such task; choose from {', '.join(known)}")
    files = {name: output / f"{name}.json" for name in task}
    refuse_existing(*files.values(), overwrite=overwrite)
    data = {"input": " ".join(input), "sha256": " ".join(map(source_digest, input))}
    lines = []
    for name, path in files.items():
        built = build_task(name, known[name].read(input), known[name], min_demos=min_demos)
        made_from = {**data, "label": known[name].label, **built.made_from}
        fields = asdict(
            built, dict_factory=lambda pairs: {k: v for k, v in pairs if v not in EMPTY}
        )
        fields["made_from"] = made_from
        write_text(path, json.dumps(fields, ensure_ascii=False, indent=1) + "\n")
        tests = ", ".join(f"{len(examples)} in {cell}" for cell, examples in built.tests.items())
        lines.append(
            f"{path}: tests {tests}; left out: {made_from['on_neither_side']} on neither side, "
            f"{made_from['repeated']} repeated"
        )
    return "\n".join(lines)
