from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.advice import Advice, attach, read_advice
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import INTERVENTIONS, make_group


def saved(folder: Path, content: Any) -> Path:
    path = folder / "advice.json"
    path.write_text(json.dumps(content))
    return path


def test_sentences_are_read_with_the_number_that_they_have_in_the_file(tmp_path: Path) -> None:
    content = {name: {"Rude ": ["One.", float("nan"), "", None, " Two. "]} for name in INTERVENTIONS}
    advice = read_advice(saved(tmp_path, content))
    assert [item.id for item in advice] == [f"{name}_rude-{i}" for name in INTERVENTIONS for i in (0, 4)]
    assert {item.sentence for item in advice} == {"One.", "Two."}


def test_the_text_is_the_papers() -> None:
    advice = Advice("ethical", "rude", 0, "Be Fair to all.")
    assert advice.text() == "Note that, be Fair to all."
    assert advice.text("Remember:") == "Remember: be Fair to all."
    assert advice.text("") == "Be Fair to all."


def test_advice_stands_beside_the_four_questions_not_in_them() -> None:
    group = make_group()
    advised = attach(group, Advice("ethical", "rude", 7, "Be fair."))
    assert (advised.advice_class, advised.advice_id) == ("ethical", "ethical_rude-7")
    assert advised.key == f"{group.unadvised_key}|ethical_rude-7"
    assert {variant.advice for variant in advised.variants} == {"Note that, be fair."}
    for before, after in zip(group.variants, advised.variants, strict=True):
        assert (after.context, after.question, after.candidates) == (
            before.context,
            before.question,
            before.candidates,
        )
    with pytest.raises(ValueError, match="already has the advice"):
        attach(advised, Advice("ethical", "rude", 1, "Be fair."))
    with pytest.raises(ValueError, match="does not belong to the category"):
        attach(group, Advice("ethical", "wealth", 1, "Be fair."))


def test_only_the_wanted_classes_are_needed(tmp_path: Path) -> None:
    path = saved(tmp_path, {"ethical": {"rude": ["One."]}})
    assert len(read_advice(path, ["ethical"])) == 1
    with pytest.raises(DataError, match=r"advice\.json: the class 'adversarial' is missing"):
        read_advice(path)


@pytest.mark.parametrize(
    ("ethical", "message"),
    [
        ({"rude": ["One.", 2]}, r"'ethical', 'rude'\[1\]: must be a sentence, found 2"),
        ({"rude": [float("nan")]}, "the class 'ethical' has no sentence"),
        ({"rude": ["One."], "RUDE": ["Two."]}, "'RUDE': the same category as 'rude'"),
        ({"a|b": ["One."]}, "without '|'"),
    ],
)
def test_wrong_shapes_name_file_and_key(tmp_path: Path, ethical: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_advice(saved(tmp_path, INTERVENTIONS | {"ethical": ethical}))


def test_the_shipped_interventions_have_the_counts_of_the_spec(shared: Path) -> None:
    counts = {}
    for domain in ("religion", "ethnicity", "gender"):
        advice = read_advice(shared / f"data/lei/interventions/{domain}_interventions.json")
        assert len({item.id for item in advice}) == len(advice)
        specific = [item for item in advice if item.category != "general"]
        general = [item for item in advice if item.category == "general"]
        counts[domain] = tuple(
            (sum(i.advice_class == c for i in specific), sum(i.advice_class == c for i in general))
            for c in ("ethical", "adversarial", "irrelevant")
        )
    assert counts["religion"] == ((48, 19), (48, 16), (96, 19))  # 3 of 19 adversarial ones are NaN
    assert counts["ethnicity"] == ((48, 19), (48, 16), (48, 19))
    assert counts["gender"] == ((8, 0), (8, 0), (8, 0))
