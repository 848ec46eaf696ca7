from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data_modules.groups.advice import with_advice
from data_modules.groups.sets import read_sentences, specify
from data_modules.groups.specified import gold_examples, gold_of
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import make_group, name_expansion, place_expansion, put


def test_specify_names_the_gold_subject_in_every_context(tmp_path: Path) -> None:
    group = make_group()
    specified = specify(group, "The bang came from [subj], again [subj].", 1)
    endings = {v.context[v.context.index(".") :] for v in specified.variants}
    assert endings == {". The bang came from Ulban, again Ulban."}
    assert [v.candidates for v in specified.variants] == [v.candidates for v in group.variants]
    # The slot takes the form that the context uses.
    contexts = [specify(group, "[subj].", 0).variants[0].context for group in place_expansion(tmp_path)]
    assert [context.rsplit(" ", 1)[1] for context in contexts] == ["Tarnland.", "Tarnish."]


NAMES = [("Oro", "Ulban"), ("Al", "Alan"), ("African", "African-American"), ("American", "Native American")]


@pytest.mark.parametrize(("one", "two"), NAMES)
def test_gold_of_reads_whom_the_words_name_again(one: str, two: str, tmp_path: Path) -> None:
    plain = make_group(one, two)
    assert gold_of(plain) is None
    for gold in (0, 1):
        assert gold_of(specify(plain, "The bang came from [subj].", gold)) == gold
    assert gold_of(specify(specify(plain, "It was [subj].", 0), "Or [subj].", 1)) is None
    first_again = [replace(v, context=f"{v.context} {v.context.split()[0]} ran.") for v in plain.variants]
    assert gold_of(replace(plain, variants=tuple(first_again))) is None  # of each order another
    assert {gold_of(group) for group in place_expansion(tmp_path)} == {None}


def test_gold_examples_are_the_questions_of_both_orders_with_one_answer(tmp_path: Path) -> None:
    advised = with_advice(make_group(), "Note that, be fair.", "ethical", "ethical_rude-2")
    found = list(gold_examples([advised, specify(advised, "It was [subj].", 0)]))
    assert [example.id for example in found] == [f"{advised.key}|0", f"{advised.key}|1"]
    assert [example.context[:-12] for example in found] == ["Oro met Ulban.", "Ulban met Oro."]
    asked = {(example.question, example.advice, example.answers[0].text) for example in found}
    assert asked == {("Who was loud?", "Note that, be fair.", "Oro")}
    # By default either is the right one, whatever the advice.
    groups = list(name_expansion(tmp_path))
    golds = [gold_of(specify(group, "[subj] lit the oven.")) for group in groups]
    assert 2 <= sum(gold or 0 for gold in golds) <= 10
    advised_groups = [with_advice(group, "Note that, x.", "ethical", "ethical_none-0") for group in groups]
    assert [gold_of(specify(group, "[subj] lit the oven.")) for group in advised_groups] == golds


def test_read_sentences_names_file_and_line(tmp_path: Path) -> None:
    path = put(tmp_path / "s.tsv", "# jobs\nWas a Baker\t[subj] baked.\n\nwas a pilot\tIt flew.\n")
    with pytest.raises(DataError, match=r"s\.tsv, line 4: .*\[subj\]"):
        read_sentences(path)
    put(path, path.read_text().replace("It flew", "[subj] flew"))
    assert read_sentences(path) == {"was a baker": "[subj] baked.", "was a pilot": "[subj] flew."}
