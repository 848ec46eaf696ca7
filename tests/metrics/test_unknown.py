"""metrics/unknown.py on labelled answers, and the page that prints the list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metrics.unknown import LIST, unknown_form, without_negated

PAGE = (Path(__file__).parents[2] / "docs" / "abstention.md").read_text()
LABELLED = [line.split("\t") for line in Path(__file__).with_name("abstaining_answers.tsv").open()]
ANSWERS = [(text.strip(), label == "unknown") for label, *texts in LABELLED for text in texts]


def test_precision_and_recall_on_labelled_answers_are_those_of_the_page() -> None:
    found = [bool(unknown_form(text)) for text, _ in ANSWERS]
    right = sum(said and unknown for said, (_, unknown) in zip(found, ANSWERS, strict=True))
    precision, recall = right / sum(found), right / sum(unknown for _, unknown in ANSWERS)
    assert min(precision, recall) > 0.97
    sentence = f"{len(ANSWERS):,} labelled answers precision is {precision:.3f} and recall {recall:.3f}"
    assert sentence.replace("0.", ".") in " ".join(PAGE.split())


def test_the_page_prints_the_list() -> None:
    listed = dict(re.findall(r"^\| `([^`]+)` \| (.*)\|$", PAGE.partition("counts as unknown")[2], re.M))
    assert [*listed] == [*LIST["forms"]]
    for form, examples in listed.items():
        assert {unknown_form(text) for text in examples.split("; ")} == {form}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Not the grandfather.", "."),
        ("It wasn't the cook but the guest", "it was but guest"),
        ("The guest rather than the cook, not the maid", "guest ,"),
        ("Neither the cook nor the guest", ""),
        ("the notary of Nottingham", "notary of nottingham"),
    ],
)
def test_a_negated_mention_is_not_a_mention(text: str, left: str) -> None:
    assert without_negated(text) == left
