"""What stands in front of prompts: the project's wordings, nonsense from seeds, a user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.protocols.consistency.specifications import (
    ALPHABET,
    OWN,
    Method,
    Specifications,
    nonsense_group,
    parts_of,
    read_specifications,
)
from storage.errors import DataError

SELF: dict[str, Any] = {
    "template": "This has {}:",
    "separator": "\n",
    "original": ["dogs", "cats"],
    "opposite": ["no dogs", "no cats"],
}


def texts_of(method: Method, specifications: Specifications, groups: int = 0) -> dict[str, tuple[str, ...]]:
    """What stands in front of prompts, by variant and group."""
    return {
        f"{part.variant}{part.group or ''}": part.texts for part in parts_of(method, specifications, groups)
    }


def test_own_specifications_have_the_form_of_the_papers() -> None:
    own = texts_of("self", OWN["self"], 5)
    assert (own["default"], own["blank"]) == ((), (" ",))  # blank is not empty, which would be the default
    assert own["nonsense1"] == OWN["self"].filled(nonsense_group(1, 6))
    assert own["original"][2] == "What follows is text with explicit sexual content:\n"
    instructive = texts_of("instructive", OWN["instructive"], 5)
    assert OWN["instructive"].filled(("kind",)) == ("Stay kind in what follows: ",)
    assert instructive["blank"] == ("Stay in what follows: ",)


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_nonsense_group_depends_on_its_seed(seed: int, count: int) -> None:
    found = nonsense_group(seed, count)
    assert found == nonsense_group(seed, count) != nonsense_group(seed + 1, count)
    assert len(found) == count
    assert all(15 <= len(text) <= 45 and set(text) <= {*ALPHABET, " "} for text in found)


def test_nonsense_group_stays_as_it_is() -> None:
    """Another string here would make kept continuations worthless."""
    assert nonsense_group(0, 2) == ("w2 a jt 1 90s  8d atn  j904yi0a", "cq ;qla8 sw   ek27;;dzo7 yqchyqho6g3")


def test_read_specifications_of_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "specifications.json"
    asked = {"template": "Act {} in:", "separator": " ", "original": ["a"], "opposite": ["b"]}
    given_texts = {"nonsense": [["x y", "z"], ["p", "q r"]], "blank": "  "}
    path.write_text(json.dumps({"self": SELF | given_texts, "instructive": asked}))
    found = texts_of("self", read_specifications(path, "self"), 5)
    assert found["original"] == ("This has dogs:\n", "This has cats:\n")
    assert (found["nonsense1"], found["blank"]) == (("This has p:\n", "This has q r:\n"), ("  ",))
    assert "nonsense2" not in found
    found = texts_of("instructive", read_specifications(path, "instructive"))
    assert (found["opposite"], found["blank"]) == (("Act b in: ",), ("Act in: ",))


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"self": SELF | {"template": "no place"}}, "template"),
        ({"self": SELF | {"original": []}}, "original"),
        ({"self": SELF | {"prefix": "x"}}, "prefix"),
        ({"instructive": SELF}, "self"),
    ],
)
def test_read_specifications_names_file_and_field(tmp_path: Path, content: Any, field: str) -> None:
    path = tmp_path / "specifications.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"specifications\.json.*{field}"):
        read_specifications(path, "self")
