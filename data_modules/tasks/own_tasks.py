"""Tasks of feature bias made of templates: `stories:NAME`, no download.

Every text draws its label and each of its features on its own, so that any feature can stand against the
label. What a label means has to be read from a word that varies.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from data_modules.sources import parse_stories
from data_modules.stories import words
from data_modules.tasks.feature_bias import FeatureTask, build_task
from data_modules.tasks.features import LabelledText, recipes
from storage.errors import DataError
from storage.json_files import load_json

SIZE = 1200
CAP = 100
GOOD = ("lovely", "splendid", "charming", "handy", "cheerful", "sturdy", "delightful", "pleasant")
BAD = ("dreadful", "useless", "ugly", "clumsy", "gloomy", "shabby", "miserable", "unpleasant")
OPENINGS = (
    "{0} said that the {1} {2} in the {3} was {4}",
    "the {1} {2} that {0} found in the {3} seemed {4}",
    "for {0}, a {1} {2} from the {3} is always {4}",
    "in the {3}, {0} called the {1} {2} {4}",
)
REST = "and {0} told everybody about it on the way from the {1} to the {2} later on that same long day"


def open_task(source: str | Path) -> FeatureTask:
    """A task from a file in the released schema, or `stories:NAME[?seed=N]`.

    Raises:
        DataError: a field is missing or of the wrong type, a label is not that of its cell, a disambiguating
            cell is empty; or configs/tasks/feature_bias.yaml lacks the name.
    """
    if not str(source).startswith("stories:"):
        return load_json(source, FeatureTask)
    kind, seed = parse_stories(str(source))
    name = f"stories:{kind}"
    if name not in recipes():
        known = ", ".join(task for task in recipes() if task.startswith("stories:"))
        raise DataError(f"no task {name}; choose from {known}")
    rng = Random(f"own-task/{kind}/{seed}")
    rows = (opinion(rng, i) for i in range(SIZE))
    return build_task(name, rows, recipes()[name], seed=seed, cap=CAP, max_demos=CAP)


def opinion(rng: Random, index: int) -> LabelledText:
    """Somebody's judgement of a thing; h1: it is good."""
    label = rng.randrange(2)
    slots = [rng.choice(x) for x in (words.NAMES, words.COLOURS, words.OBJECTS, words.PLACES)]
    text = rng.choice(OPENINGS).format(*slots, rng.choice(GOOD if label else BAD))
    if rng.random() < 0.5:
        text += ", " + REST.format(rng.choice(words.NAMES), *rng.sample(words.MEETING_PLACES, 2))
    if rng.random() < 0.5:
        text = f"today {text}"
    if rng.random() < 0.5:
        text = text.replace(slots[2], slots[2].upper())
    text = text[0].upper() + text[1:] + rng.choice(".!")
    return LabelledText(f"opinion-{index}", (text,), label)
