from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.interventions.deletion import sentence_spans, trim


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize("blank", ["\n\n", "\n \t\n", "\r\n\r\n", "\n\n\n\n"])
def test_a_blank_line_ends_a_sentence_without_a_full_stop(blank: str) -> None:
    assert sentences(f"A title{blank}The story began{blank}") == ["A title", "The story began"]


def test_abbreviations_numbers_and_quotations_are_not_cut() -> None:
    text = 'Mr. Smith paid 3.50 dollars to J. K. Rowling. "We go. Now!" he said. Then St. Mary shone.'
    assert sentences(text) == [
        "Mr. Smith paid 3.50 dollars to J. K. Rowling.",
        '"We go. Now!" he said.',
        "Then St. Mary shone.",
    ]


def test_offsets_count_characters_not_bytes() -> None:
    assert sentences("Zoë saw “Łódź”. 😀 Then café. \ud800 End.")[-1].endswith("End.")
    assert sentences("Zoë saw Łódź 😀. Then she left.") == ["Zoë saw Łódź 😀.", "Then she left."]


_TEXTS = st.text() | st.lists(
    st.sampled_from(
        ["He left.", "Mr. X", '"Go.', 'Now!"', " ", "\n", "\n\n", "é😀", "...", "?", "(a. B)", "’"]
    )
).map(" ".join)


@given(_TEXTS)
def test_sentences_are_ordered_trimmed_and_cover_the_text(text: str) -> None:
    end_before = 0
    outside = ""
    for start, end in sentence_spans(text):
        assert end_before <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        assert not re.search(r"\n\s*\n", text[start:end])
        outside += text[end_before:start]
        end_before = end
    assert not (outside + text[end_before:]).strip()


@given(st.text(alphabet=" \nab"), st.data())
def test_trim_is_strip(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(text)))
    start = data.draw(st.integers(0, end))
    left, right = trim(text, start, end)
    assert start <= left <= right <= end
    assert text[left:right] == text[start:end].strip()


def test_boundaries_agree_with_hotpotqas_own(shared: Path) -> None:
    items = json.loads((shared / "data" / "hotpotqa" / "distractor-100.json").read_text())
    paragraphs = {title: parts for item in items for title, parts in item["context"]}
    differ = total = 0
    for parts in paragraphs.values():
        text = "".join(parts)
        ends = {len("".join(parts[: i + 1]).rstrip()) for i in range(len(parts))}
        found = {end for _, end in sentence_spans(text)}
        last = {len(text.rstrip())}
        differ += len((ends ^ found) - last)
        total += len((ends | found) - last)
    assert total > 3000
    assert differ / total < 0.03
