"""Tasks of feature bias made of templates: `stories:NAME`, no download.

Every text draws its label and each of its features on its own, so that any feature can stand against the
label. What a label means has to be read from a word that varies.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from data_modules.sources import parse_stories
from data_modules.stories import words
from data_modules.tasks.feature_bias import FeatureTask, Sizes, build_task, read_task
from data_modules.tasks.features import recipes
from data_modules.tasks.labelled_texts import LabelledText
from storage.errors import DataError

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
    """A task from a file in the released schema, or `stories:NAME[?seed=N]`. DataError as in `read_task`, and
    for a name that configs/tasks/feature_bias.yaml lacks."""
    if not str(source).startswith("stories:"):
        return read_task(source)
    name, seed = parse_stories(str(source))
    if f"stories:{name}" not in recipes():
        known = ", ".join(task for task in recipes() if task.startswith("stories:"))
        raise DataError(f"no task stories:{name}; choose from {known}")
    rng = Random(f"own-task/{name}/{seed}")
    rows = [(_pair if name == "overlap" else opinion)(rng, i) for i in range(SIZE)]
    sizes = Sizes(seed=seed, cap=CAP, max_demos=CAP)
    return build_task(f"stories:{name}", rows, recipes()[f"stories:{name}"], sizes)


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
    return LabelledText(f"opinion-{index}", text, "", label)


def _pair(rng: Random, index: int) -> LabelledText:
    """Two sentences; h1: the second follows from the first. It does or does not, with words of the first
    alone or with others."""
    label, same = rng.randrange(2), rng.random() < 0.5
    first, second = rng.sample(words.NAMES, 2)
    thing, other = rng.sample(words.OBJECTS, 2)
    colour, place = rng.choice(words.COLOURS), rng.choice(words.PLACES)
    premise = f"{first} left the {colour} {thing} in the {place}, and {second} took the {other}."
    if same:
        hypothesis = f"{first} left the {thing} in the {place}." if label else f"{second} left the {thing}."
    else:
        hypothesis = f"Somebody has the {other} now." if label else f"{first} never owned a {thing}."
    return LabelledText(f"pair-{index}", premise, hypothesis, label)
