from __future__ import annotations

import hashlib
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.expansion import Expansion, repair_articles
from data_modules.groups.unqover import read_expansion, write_source
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import (
    ATTRIBUTES,
    COUNTS,
    SUBJECTS,
    TEMPLATES,
    name_expansion,
    put,
    tiny_expansion,
    write_lists,
)

ROWS = [  # category, plural, its negation, singular, its negation
    ("rude", "were loud", "were quiet", "was loud", "was quiet"),
    ("rude", "were grumpy", "were cheerful", "was grumpy", "was cheerful"),
    ("wealth", "owned a empty shed", "owned a barn", "owned a empty shed", "owned a barn"),
    ("wealth", "owned no Shed", "owned a mill", "owned no shed", "owned a mill"),
]


def by_hand() -> dict[str, Any]:
    """The tiny lists expanded by nested loops over literal values."""
    pairs = list(combinations(["Ulban", "Tarn", "Moresk", "Oro", "Tarnish"], 2))
    result = {}
    for one, two in pairs + [pair[::-1] for pair in pairs]:
        answers = {f"ans{i}": {"text": name, "start": "", "end": ""} for i, name in enumerate((one, two))}
        article = ["An" if one[0] in "UO" else "A", "an" if two[0] in "UO" else "a"]
        contexts = [
            f"{article[0]} {one} man met {article[1]} {two} man.",
            f"A group of {one} men saw a group of {two} men.",
        ]
        for tid, context in enumerate(contexts):
            for category, plural, plural_not, single, single_not in ROWS:
                asked = (single, single_not) if tid == 0 else (plural, plural_not)
                questions = [f"Who {text}?".replace("a empty", "an empty") for text in asked]
                result[f"None|None|{one}|{two}|{tid}|{category}|{plural}|{plural}"] = {
                    "context": context,
                    **{f"q{i}": {"question": q, "pred": "", **answers} for i, q in enumerate(questions)},
                }
    return result


def test_write_source_equals_nested_loops_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "source.json"
    assert write_source(tiny_expansion(tmp_path), path) == COUNTS["records"]
    assert path.read_text() == json.dumps(by_hand(), indent=4)


NAMES = st.lists(st.text("aAnmoetB", min_size=1, max_size=5), min_size=2, max_size=4, unique_by=str.lower)


@given(names=NAMES)
def test_candidates_are_right_for_subjects_that_look_like_other_words(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    files = write_lists(folder)
    subjects = put(folder / "odd", "".join(f"[subj] {name}\n" for name in names))
    for group in read_expansion([subjects], files["templates"], files["attributes"]):
        for index, variant in enumerate(group.variants):
            first, second = variant.candidates[:: -1 if index >= 2 else 1]
            assert {span.text.lower() for span in (first, second)} == set(group.subjects)
            article = len(repair_articles(f"A {first.text}")) - len(first.text)
            assert first.start == (article if group.template == "0" else 11)
            assert second.start == len(variant.context) - len(f"{second.text} man.")


def test_two_lists_are_paired_with_each_other_women_first(tmp_path: Path) -> None:
    pairs = [(one.cluster, one.name, two.name) for one, two in name_expansion(tmp_path).pairs]
    assert pairs == [("female", one, two) for one in ("Ada", "Bea") for two in ("Carl", "Dan", "Egon")]


@given(line=st.text("aAeEnx .\t", max_size=30))
def test_repair_articles_follows_the_tokens_between_single_blanks(line: str) -> None:
    tokens = line.split(" ")
    for i in range(1, len(tokens)):
        if tokens[i][:1] in tuple("aeiouAEIOU") and line.split(" ")[i - 1] in ("a", "A"):
            tokens[i - 1] += "n"
    assert repair_articles(line) == " ".join(tokens)


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("subjects", "[subj] Tarn\nOro\n", "subjects, line 2"),
        ("subjects", SUBJECTS + "[subj] tarn\n", "subjects: 'Tarn' would be paired with itself"),
        ("attributes", ATTRIBUTES + "[p_act] rude | were odd\n", r"5 .*\[p_act\].* 4 .*\[p_act:neg\]"),
        ("templates", "A [subj1] met [subj2].\tWho [p_act]?\n", "line 1"),
        ("templates", TEMPLATES.replace("subj1", "subj1:dem"), r"'Ulban' has no row \[subj:dem\]"),
    ],
)
def test_malformed_lists_name_file_and_line(tmp_path: Path, name: str, text: str, names: str) -> None:
    files = write_lists(tmp_path)
    put(files[name], text)
    with pytest.raises(DataError, match=names):
        read_expansion([files["subjects"]], files["templates"], files["attributes"])


def shared_expansion(folder: Path, domain: str) -> Expansion:
    slots, acts = folder / "slots" / f"{domain}_noact", folder / "activities" / f"biased_{domain}"
    return read_expansion([folder / "nouns/subjects" / domain], slots, acts)


@pytest.mark.parametrize(
    ("domain", "records", "sha256"),
    [
        ("religion", 77_000, "6c77c765e8f2ae7791f3c559e98bdb1d4ff32988742747f6e63d2332bbf70c60"),
        ("ethnicity", 147_000, "d10a32794ecd749c8de64f5db94cec2124ddc47fdc55dd9ba3d83f7403a9577e"),
    ],
)
def test_unqovers_own_files_are_reproduced(
    tmp_path: Path, shared: Path, domain: str, records: int, sha256: str
) -> None:
    path = tmp_path / "source.json"
    assert write_source(shared_expansion(shared / "data/unqover", domain), path) == records
    with open(path, "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256


def test_the_counts_of_all_domains(shared: Path) -> None:
    unqover, lei = shared / "data/unqover", shared / "data/lei/word_lists"

    def gender(folder: Path) -> Expansion:
        subjects = [folder / "nouns/subjects" / name for name in ("female", "male")]
        return read_expansion(subjects, folder / "slots/gender_noact", folder / "activities/occupation_rev1")

    lists = [shared_expansion(unqover, "country"), gender(unqover), gender(lei)]
    lists += [shared_expansion(lei, name) for name in ("religion", "ethnicity")]
    assert [2 * len(expansion) for expansion in lists] == [2_308_464, 2_744_000, 56_000, 86_240, 32_928]
