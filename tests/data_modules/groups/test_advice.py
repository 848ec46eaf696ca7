from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from data_modules.groups.advice import Advice, read_advice, spread, unadvised, with_advice, with_unadvised
from data_modules.stories.groups import groups
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import INTERVENTIONS, make_group


def test_read_advice_numbers_sentences_as_the_file_does(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    content = {name: {"Rude ": ["One.", float("nan"), "", None, " Two. "]} for name in INTERVENTIONS}
    path.write_text(json.dumps(content))
    advice = read_advice(path)
    assert [item.id for item in advice] == [f"{name}_rude-{i}" for name in INTERVENTIONS for i in (0, 4)]
    assert {item.sentence for item in advice} == {"One.", "Two."}
    path.write_text(json.dumps({"wise": {"rude": ["One."]}}))
    with pytest.raises(DataError, match=r"advice\.json.*wise"):
        read_advice(path)


def test_with_advice_leaves_contexts_and_questions() -> None:
    assert Advice("ethical", "rude", 0, "Be Fair to all.").text == "Note that, be Fair to all."
    group = make_group()
    advised = with_advice(group, "Note that, be fair.", "ethical", "ethical_rude-7")
    assert advised.key == f"{group.unadvised_key}|ethical_rude-7"
    assert {variant.advice for variant in advised.variants} == {"Note that, be fair."}
    assert unadvised([advised, group]) == [group]


@pytest.mark.parametrize("with_none", [True, False])
def test_spread_takes_n_of_each_class_and_what_they_ask_without_advice(with_none: bool) -> None:
    every = list(islice(groups("train"), 600))
    taken = with_unadvised(spread(with_unadvised(every) if with_none else every, 5))
    counts = Counter(group.advice_class for group in taken)
    questions = {group.unadvised_key for group in taken if group.advice_class != "none"}
    assert counts == {"ethical": 5, "adversarial": 5, "irrelevant": 5, "none": len(questions)}
    assert questions == {group.unadvised_key for group in taken if group.advice_class == "none"}


def test_released_interventions_have_the_counts_of_the_spec(shared: Path) -> None:
    counts = {}
    for domain in ("religion", "ethnicity", "gender"):
        advice = read_advice(shared / f"data/lei/interventions/{domain}_interventions.json")
        assert len({item.id for item in advice}) == len(advice)
        number = Counter((item.advice_class, item.category == "general") for item in advice)
        classes = ("ethical", "adversarial", "irrelevant")
        counts[domain] = [(number[name, False], number[name, True]) for name in classes]
    assert counts["religion"] == [(48, 19), (48, 16), (96, 19)]  # 3 of 19 adversarial ones are NaN
    assert counts["ethnicity"] == [(48, 19), (48, 16), (48, 19)]
    assert counts["gender"] == [(8, 0), (8, 0), (8, 0)]
