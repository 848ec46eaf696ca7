from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.records import read_scored, write_records
from data_modules.schema import Group, ScoredGroup
from data_modules.sources import format_of, read_groups
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import make_group

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAIR = st.tuples(st.floats(0, 1), st.floats(0, 1))
SCORES = st.tuples(*[st.tuples(PAIR, PAIR)] * 4)
TARGETS = st.tuples(*[st.integers(0, 1)] * 4)
GROUP = st.builds(
    lambda advice, domain, attribute: replace(
        make_group("Oro", "Ulban", attribute, "ethical_rude-0" if advice else "", advice), domain=domain
    ),
    *(TEXT, TEXT, TEXT),
)
SCORED = st.builds(ScoredGroup, GROUP, SCORES, st.none() | TARGETS, answers=st.tuples(TEXT, TEXT))


@given(groups=st.lists(GROUP, min_size=1, max_size=3), scored=st.lists(SCORED, min_size=1, max_size=3))
def test_written_records_are_read_back(
    groups: list[Group], scored: list[ScoredGroup], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    assert write_records(groups, folder / "groups") == len(groups)
    assert list(read_groups(folder / "groups")) == groups
    write_records(scored, folder / "scored")
    assert list(read_scored(folder / "scored")) == scored
    assert list(read_groups(folder / "scored")) == [record.group for record in scored]
    assert {format_of(folder / name).name for name in ("groups", "scored")} == {"groups"}


def test_read_groups_names_line_and_fault_or_skips(tmp_path: Path) -> None:
    lacking, moved = asdict(make_group()), asdict(make_group())
    del lacking["category"]
    moved["variants"][3]["candidates"][1]["start"] += 1
    path = tmp_path / "groups"
    for wrong, named in ((lacking, "the field 'category' is missing"), (moved, "offset 1 cuts 'lban'")):
        path.write_text("".join(json.dumps(row) + "\n" for row in (asdict(make_group()), wrong)))
        with pytest.raises(DataError, match=f"groups, line 2: .*{named}"):
            list(read_groups(path))
        assert list(read_groups(path, skip_bad=True)) == [make_group()]
