from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.protocols.consistency.specifications import (
    ALPHABET,
    METHODS,
    OWN,
    Method,
    nonsense_group,
    nonsense_groups,
    read_specifications,
)
from storage.errors import DataError

SELF: dict[str, Any] = {
    "template": "This has {}:",
    "separator": "\n",
    "original": ["dogs", "cats"],
    "opposite": ["no dogs", "no cats"],
}
INSTRUCTIVE: dict[str, Any] = {"template": "Act {} in:", "separator": " ", "original": "a", "opposite": "b"}


def saved(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "specifications.json"
    path.write_text(json.dumps(content))
    return path


def test_our_own_have_the_form_of_the_papers() -> None:
    own = OWN["self"]
    assert len(own.original) == len(own.opposite) == 6
    prefixes = own.filled(own.original)
    assert all(
        prefix.endswith(":\n") and text in prefix for prefix, text in zip(prefixes, own.original, strict=True)
    )
    assert own.blanks == (" ",)  # not empty, which would be the default
    instructive = OWN["instructive"]
    assert len(instructive.filled(instructive.original)) == 1
    assert instructive.filled(("kind",)) == ("Stay kind in what follows: ",)
    assert instructive.blanks == ("Stay in what follows: ",)


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_nonsense_comes_from_its_seed(seed: int, count: int) -> None:
    found = nonsense_group(seed, count)
    assert found == nonsense_group(seed, count)
    assert found != nonsense_group(seed + 1, count)
    assert len(found) == count
    assert all(15 <= len(text) <= 45 and set(text) <= {*ALPHABET, " "} for text in found)


def test_nonsense_stays_what_it_is() -> None:
    """Another string here would make kept continuations worthless."""
    assert nonsense_group(0, 2) == ("w2 a jt 1 90s  8d atn  j904yi0a", "cq ;qla8 sw   ek27;;dzo7 yqchyqho6g3")


@pytest.mark.parametrize("method", METHODS)
def test_groups_of_nonsense_have_the_form_of_the_originals(method: Method) -> None:
    groups = nonsense_groups(OWN[method], 5)
    assert len(set(groups)) == 5
    assert {len(group) for group in groups} == {len(OWN[method].original)}


def test_a_users_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {"self": SELF, "instructive": INSTRUCTIVE})
    found = read_specifications(path, "self")
    assert found.filled(found.original) == ("This has dogs:\n", "This has cats:\n")
    assert found.blanks == (" ",)
    asked = read_specifications(path, "instructive")
    assert asked.filled(asked.opposite) == ("Act b in: ",)
    assert asked.blanks == ("Act in: ",)


def test_nonsense_of_a_users_file(tmp_path: Path) -> None:
    given_self = [["x y", "z"], ["p", "q r"]]
    path = saved(
        tmp_path,
        {
            "self": SELF | {"nonsense": given_self, "blank": "  "},
            "instructive": INSTRUCTIVE | {"nonsense": ["x", ["y"]], "blank": "Be:"},
        },
    )
    found = read_specifications(path, "self")
    assert nonsense_groups(found, 2) == (("x y", "z"), ("p", "q r"))
    assert nonsense_groups(found, 1) == (("x y", "z"),)
    assert found.blanks == ("  ",)
    asked = read_specifications(path, "instructive")
    assert nonsense_groups(asked, 2) == (("x",), ("y",))
    assert asked.blanks == ("Be: ",)
    with pytest.raises(DataError, match="--nonsense-groups 2"):
        nonsense_groups(found, 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"template": "no place"}, "template"),
        ({"template": "{} {}"}, "template"),
        ({"separator": None}, "separator"),
        ({"original": "dogs"}, "opposite"),  # of which there are two
        ({"original": []}, "original"),
        ({"original": ["a", " "]}, "original"),
        ({"original": ["a", "a"]}, "original"),
        ({"original": ["a", "\ud800"]}, "original"),
        ({"opposite": ["one"]}, "opposite"),
        ({"blank": ""}, "blank"),
        ({"nonsense": [["x"]]}, r"nonsense\[0\]"),
        ({"prefix": "x"}, "prefix"),
    ],
)
def test_mistakes_name_the_field(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    path = saved(tmp_path, {"self": SELF | change})
    with pytest.raises(DataError, match=rf"specifications\.json.*{field}"):
        read_specifications(path, "self")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ({"self": SELF}, "instructive"),
        ({"instructive": INSTRUCTIVE, "selfish": SELF}, "selfish"),
        ({"instructive": SELF}, "original"),  # an instruction is one text
        ([1], "object"),
    ],
)
def test_files_without_the_method(tmp_path: Path, content: Any, name: str) -> None:
    with pytest.raises(DataError, match=rf"specifications\.json.*{name}"):
        read_specifications(saved(tmp_path, content), "instructive")
