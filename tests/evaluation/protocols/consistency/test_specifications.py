"""What stands in front of prompts: the project's wordings, nonsense from seeds, a user's file."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from evaluation.protocols.consistency.specifications import (
    ALPHABET,
    OWN,
    nonsense_group,
    parts_of,
    read_specifications,
)


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_nonsense_group_depends_on_its_seed(seed: int, count: int) -> None:
    found = nonsense_group(seed, count)
    assert found == nonsense_group(seed, count) != nonsense_group(seed + 1, count)
    assert len(found) == count
    assert all(15 <= len(text) <= 45 and set(text) <= {*ALPHABET, " "} for text in found)


def test_parts_of_own_and_of_a_users_specifications(tmp_path: Path) -> None:
    own = read_specifications(OWN, "self")
    default, _, _, *nonsense, blank = parts_of("self", own, 5)
    assert default.texts == ()
    assert blank.texts == (" ",)  # not empty, which would be the default
    assert [part.texts for part in nonsense] == [own.filled(nonsense_group(i, 6)) for i in range(5)]
    path = tmp_path / "specifications.json"
    prefixes: dict[str, object] = {
        "template": "This has {}:",
        "separator": "\n",
        "original": ["dogs", "cats"],
        "opposite": ["x"],
    }
    prefixes |= {"nonsense": [["x y", "z"], ["p", "q r"]], "blank": "  "}
    asked = {"template": "Act {} in:", "separator": " ", "original": ["a"], "opposite": ["b"]}
    path.write_text(json.dumps({"self": prefixes, "instructive": asked}))
    _, original, _, _, second, blank = parts_of("self", read_specifications(path, "self"), 5)
    assert original.texts == ("This has dogs:\n", "This has cats:\n")
    assert (second.texts, blank.texts) == (("This has p:\n", "This has q r:\n"), ("  ",))
    _, _, opposite, blank = parts_of("instructive", read_specifications(path, "instructive"), 0)
    assert (opposite.texts, blank.texts) == (("Act b in: ",), ("Act in: ",))
