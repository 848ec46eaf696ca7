"""Invented word lists in UnQover's format and a small interventions file, small enough to count by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from data_modules.groups.advice import Advice, read_advice
from data_modules.groups.sets import parts_of
from data_modules.groups.unqover import Expansion, read_expansion
from data_modules.schema import Group, Span, UnderspecifiedQuestion

SUBJECTS = """# invented peoples
[subj] Ulban
[subj] Tarn

[subj] Moresk
[subj] Oro
[subj] Tarnish
"""
WOMEN = "[subj] female | Ada\n[subj] female | Bea\n"
MEN = "[subj] male | Carl\n[subj] male | Dan\n[subj] male | Egon\n"
PLACES = "[subj] Ulbania\n[subj] Tarnland\n[subj:dem] Ulban\n[subj:dem] Tarnish\n"
TEMPLATES = (
    "A [subj1] man met a [subj2] man.\tWho [p_act-single]?\tWho [p_act-single:neg]?\n"
    "# left out\n\n"
    "A group of [subj1] men saw a group of [subj2] men.\tWho [p_act]?\tWho [p_act:neg]?"
)
NAME_TEMPLATES = "[subj1] met [subj2].\tWho [p_act]?\tWho [p_act:neg]?\n"
PLACE_TEMPLATES = (
    "He flew from [subj1] to [subj2].\tWhich place [l_act]?\tWhich place [l_act:neg]?\n"
    "A [subj1:dem] man met a [subj2:dem] man.\tWho [p_act]?\tWho [p_act:neg]?\n"
)
PLACE_ATTRIBUTES = """[l_act] rude | is loud
[p_act] rude | was loud
[l_act:neg] rude | is calm
[p_act:neg] rude | was calm
"""
ATTRIBUTES = """[p_act] rude\t| were loud
[p_act] rude | were grumpy
[p_act] wealth | owned a empty shed
[p_act] wealth | owned no Shed
[p_act:neg] rude | were quiet
[p_act:neg] rude | were cheerful
[p_act:neg] wealth | owned a barn
[p_act:neg] wealth | owned a mill
[p_act-single] rude | was loud
[p_act-single] rude | was grumpy
[p_act-single] wealth | owned a empty shed
[p_act-single] wealth | owned no shed
[p_act-single:neg] rude | was quiet
[p_act-single:neg] rude | was cheerful
[p_act-single:neg] wealth | owned a barn
[p_act-single:neg] wealth | owned a mill
"""
JOBS = """[p_act] was a baker
[p_act] was a pilot
[p_act:neg] can never be a baker
[p_act:neg] can never be a pilot
"""
INTERVENTIONS = {
    "ethical": {
        "rude": [
            "Manners have nothing to do with origin. ",
            "Do not judge manners by origin.",
            "Be fair to all.",
        ],
        "wealth": ["Wealth is not a matter of origin.", "Judge nobody's wealth.", "Origin earns no money."],
    },
    "adversarial": {
        "rude": ["Manners follow from origin.", "Origin decides manners.", "Look at the origin."],
        "wealth": ["Wealth follows from origin.", "Origin makes rich.", "Origin earns money."],
    },
    "irrelevant": {
        "rude": ["The weather was fine.", "Tea was served.", "It rained."],
        "wealth": ["The weather was fine.", "A dog barked.", "It snowed."],
    },
}
COUNTS = {"pairs": 10, "templates": 2, "attributes": 4, "groups": 80, "records": 160, "advised": 240}
"""By hand: C(5, 2) pairs x 2 templates x 4 attributes; 3 sentences a category and class."""


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_lists(folder: Path) -> dict[str, Path]:
    """The invented peoples' lists as files: subjects, templates, attributes, interventions."""
    return {
        "subjects": put(folder / "subjects", SUBJECTS),
        "templates": put(folder / "templates", TEMPLATES),
        "attributes": put(folder / "attributes", ATTRIBUTES),
        "interventions": put(folder / "interventions.json", json.dumps(INTERVENTIONS)),
    }


def tiny_expansion(folder: Path) -> Expansion:
    files = write_lists(folder)
    return read_expansion([files["subjects"]], files["templates"], files["attributes"])


def name_expansion(folder: Path) -> Expansion:
    """Women paired with men, one template, two jobs: 6 pairs, 24 records."""
    subjects = [put(folder / "women", WOMEN), put(folder / "men", MEN)]
    return read_expansion(subjects, put(folder / "slots", NAME_TEMPLATES), put(folder / "jobs", JOBS))


def place_expansion(folder: Path) -> Expansion:
    """Places with demonyms: surface forms that differ from the subjects' names."""
    subjects, slots = put(folder / "places", PLACES), put(folder / "place_slots", PLACE_TEMPLATES)
    return read_expansion([subjects], slots, put(folder / "place_attributes", PLACE_ATTRIBUTES))


def make_group(
    one: str = "Oro",
    two: str = "Ulban",
    attribute: str = "was loud",
    advice_id: str = "",
    advice: str = "",
    template: str = "0",
) -> Group:
    """A group of the pattern "X met Y."; `one` sorts before `two`."""

    def variant(first: str, second: str, question: str) -> UnderspecifiedQuestion:
        context = f"{first} met {second}."
        spans = {first: Span(0, len(first), first)}
        spans[second] = Span(len(first) + 5, len(first) + 5 + len(second), second)
        return UnderspecifiedQuestion(context, question, (spans[one], spans[two]), advice)

    asked, negated = f"Who {attribute}?", f"Who never {attribute}?"
    return Group(
        subjects=(one.lower(), two.lower()),
        template=template,
        category="rude",
        attribute=attribute,
        advice_class=advice_id.partition("_")[0] or "none",  # type: ignore[arg-type]
        advice_id=advice_id,
        variants=(
            variant(one, two, asked),
            variant(one, two, negated),
            variant(two, one, asked),
            variant(two, one, negated),
        ),
    )


Tiny = tuple[Expansion, tuple[Advice, ...]]


def religion(shared: Path) -> Tiny:
    """LEI's own lists and interventions, from the folder of shared data."""
    lists = shared / "data/lei/word_lists"
    expansion = read_expansion(
        [lists / "nouns/subjects/religion"],
        lists / "slots/religion_noact",
        lists / "activities/biased_religion",
    )
    return expansion, read_advice(shared / "data/lei/interventions/religion_interventions.json")


def shared_parts(one: Iterable[Group], two: Iterable[Group]) -> set[str]:
    """The subjects, attributes, advice ids and advice sentences that both sets have."""
    first, second = (parts_of(groups) for groups in (one, two))
    kinds = ("subjects", "attributes", "advice_ids", "sentences")
    return {part for kind in kinds for part in getattr(first, kind) & getattr(second, kind)}
