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
INSTRUCTIVE: dict[str, Any] = {"template": "Act {} in:", "separator": " ", "original": "a", "opposite": "b"}


def saved(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "specifications.json"
    path.write_text(json.dumps(content))
    return path


def texts_of(specifications: Specifications, groups: int = 0) -> dict[str, tuple[str, ...]]:
    """What stands in front of prompts, by variant and group."""
    return {f"{part.variant}{part.group or ''}": part.texts for part in parts_of(specifications, groups)}


def test_our_own_have_the_form_of_the_papers() -> None:
    own = texts_of(OWN["self"], 5)
    assert own["default"] == ()
    assert own["blank"] == (" ",)  # not empty, which would be the default
    assert own["nonsense1"] == OWN["self"].filled(nonsense_group(1, 6))
    assert len({own[name] for name in own if name.startswith("nonsense")}) == 5
    assert {len(own[name]) for name in own if name not in ("default", "blank")} == {6}
    assert all(
        prefix.endswith(":\n") and text in prefix
        for prefix, text in zip(own["original"], OWN["self"].original, strict=True)
    )
    instructive = texts_of(OWN["instructive"], 5)
    assert {len(texts) for name, texts in instructive.items() if name != "default"} == {1}
    assert OWN["instructive"].filled(("kind",)) == ("Stay kind in what follows: ",)
    assert instructive["blank"] == ("Stay in what follows: ",)


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_nonsense_comes_from_its_seed(seed: int, count: int) -> None:
    found = nonsense_group(seed, count)
    assert found == nonsense_group(seed, count)
    assert len({found, nonsense_group(seed + 1, count)}) == 2
    assert len(found) == count
    assert all(15 <= len(text) <= 45 and set(text) <= {*ALPHABET, " "} for text in found)


def test_nonsense_stays_what_it_is() -> None:
    """Another string here would make kept continuations worthless."""
    assert nonsense_group(0, 2) == ("w2 a jt 1 90s  8d atn  j904yi0a", "cq ;qla8 sw   ek27;;dzo7 yqchyqho6g3")


def test_a_users_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {"self": SELF, "instructive": INSTRUCTIVE})
    found = texts_of(read_specifications(path, "self"))
    assert (found["original"], found["blank"]) == (("This has dogs:\n", "This has cats:\n"), (" ",))
    asked = texts_of(read_specifications(path, "instructive"))
    assert (asked["opposite"], asked["blank"]) == (("Act b in: ",), ("Act in: ",))


def test_nonsense_of_a_users_file(tmp_path: Path) -> None:
    given_self = SELF | {"nonsense": [["x y", "z"], ["p", "q r"]], "blank": "  ", "template": "{}"}
    given = INSTRUCTIVE | {"nonsense": ["x", ["y"]], "blank": "Be:"}
    path = saved(tmp_path, {"self": given_self, "instructive": given})
    found = read_specifications(path, "self")
    texts = texts_of(found, 2)
    assert (texts["nonsense"], texts["nonsense1"]) == (("x y\n", "z\n"), ("p\n", "q r\n"))
    assert "nonsense1" not in texts_of(found, 1)
    assert texts["blank"] == ("  ",)
    asked = texts_of(read_specifications(path, "instructive"), 2)
    assert (asked["nonsense1"], asked["blank"]) == (("Act y in: ",), ("Be: ",))
    with pytest.raises(DataError, match="--nonsense-groups 2"):
        texts_of(found, 3)


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
