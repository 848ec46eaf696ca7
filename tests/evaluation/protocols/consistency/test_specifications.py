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
    ("change", "told"),
    [
        ({"template": "no place"}, "'template' must hold {} once"),
        ({"template": "{} {}"}, "'template' must hold {} once"),
        ({"separator": None}, "'separator' must be a string"),
        ({"original": "dogs"}, "'original' must be a list"),
        ({"original": []}, "'original' holds no text"),
        ({"original": ["a", " "]}, "text 1 of 'original'"),
        ({"original": ["a", "a"]}, "same text twice"),
        ({"original": ["a", "\ud800"]}, "surrogate"),
        ({"opposite": ["one"]}, "2 original texts and 1 opposite"),
        ({"blank": ""}, "'blank' is empty"),
        ({"nonsense": [["x"]]}, "nonsense group 0 must be a list of 2"),
        ({"prefix": "x"}, "unknown field 'prefix'"),
    ],
)
def test_mistakes_name_the_field(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    path = saved(tmp_path, {"self": SELF | change})
    with pytest.raises(DataError, match=r"specifications\.json") as caught:
        read_specifications(path, "self")
    assert told in str(caught.value)


def test_files_without_the_method_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'instructive' \\(an object\\) is missing"):
        read_specifications(saved(tmp_path, {"self": SELF}), "instructive")
    with pytest.raises(DataError, match="unknown field 'selfish'"):
        read_specifications(saved(tmp_path, {"selfish": SELF}), "self")
    with pytest.raises(DataError, match="expected an object"):
        read_specifications(saved(tmp_path, [1]), "self")
