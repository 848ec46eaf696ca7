"""What holds of every intervention on every story, and of the boundaries of its sentences."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from interventune.data_modules.interventions.edits import straight_quotes
from interventune.data_modules.interventions.variants import perturb, sentence_spans
from interventune.data_modules.questions.answer_spans import occurs
from interventune.data_modules.schema import questions as schema
from interventune.data_modules.schema.questions import QAExample, Span, Variant


def squeezed(text: str) -> str:
    return "".join(text.split())


def naive_occurs(text: str, context: str) -> bool:
    """Word by word, white space being one token."""
    part, whole = (re.findall(r"\w+|\W", " ".join(t.split())) for t in (text, context))
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


_STORIES = ["Ida sat.", "Moro ran off!", '"Go. Now," he said.', "Who knew?", "It was 3.5 m é😀."]
_SENTENCES = st.sampled_from([*_STORIES, "A title"])
_GAPS = st.sampled_from([" ", "  ", "\n", "\n\n", " \n \n "])


@st.composite
def examples(draw: st.DrawFn) -> QAExample:
    parts = [draw(st.sampled_from(["", " ", "\n"]))]
    for sentence in draw(st.lists(_SENTENCES, min_size=1, max_size=7)):
        parts += [sentence, draw(_GAPS)]
    story = "".join(parts)
    offsets = st.lists(st.integers(0, len(story)), min_size=2, max_size=6, unique=True)
    cuts = sorted(draw(offsets))
    spans = [Span(a, b, story[a:b]) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    spans = [span for span in spans if span.text.strip()]
    assume(spans)
    start = draw(st.integers(0, len(story) - 1))
    end = draw(st.integers(start + 1, min(len(story), start + 20)))
    assume(story[start:end].strip())
    kind: Any = draw(st.sampled_from(["span", "number", "yes"]))
    answers = () if kind == "yes" else (Span(start, end, story[start:end]),)
    return QAExample("x", story, "Why is it so?", answers, answer_type=kind, rationale=tuple(spans))


@given(examples(), st.sampled_from(sorted({*schema.VARIANTS} - schema.EXCHANGED)))
def test_offsets_cut_what_they_claim(original: QAExample, variant: Variant) -> None:
    result = perturb(original, variant)
    assume(isinstance(result, QAExample))
    assert isinstance(result, QAExample)
    for span in (*result.answers, *result.rationale):
        assert 0 <= span.start < span.end
        assert result.context[span.start : span.end] == span.text
    kept = "".join(original.context[start:end] for start, end in result.kept)
    if variant == "os_r":  # every other character
        gone = {i for span in original.rationale for i in range(span.start, span.end)}
        others = "".join(c for i, c in enumerate(original.context) if i not in gone)
        assert squeezed(kept) == squeezed(others)
    if variant in schema.REFORMATTED:
        assert kept in ("", result.context)
        pairs = [(original.context, result.context)]
        pairs += [(original.question, result.question)] * (variant in ("quoted", "spaced"))
        spans = (original.answers, result.answers), (original.rationale, result.rationale)
        for olds, news in spans:
            pairs += [(old.text, new.text) for old, new in zip(olds, news, strict=True)]
        for before, after in pairs:
            assert squeezed(straight_quotes(before)) == squeezed(straight_quotes(after))
    else:
        assert result.context == (f"{kept} {result.appended}" if result.appended else kept)
    assert list(result.kept) == sorted(result.kept)
    assert result.gold == original.gold
    if variant in schema.DELETED:
        assert (result.answer_type, result.answers, result.rationale) == ("unknown", (), ())
        places = [(span.start, span.end) for span in original.answers]
        assert not any(start <= a and b <= end for a, b in places for start, end in result.kept)


@given(examples())
def test_ts_is_a_prefix_of_the_story_and_ts_r_of_ts(original: QAExample) -> None:
    ts, ts_r = perturb(original, "ts"), perturb(original, "ts_r")
    if isinstance(ts, QAExample):
        end = ts.kept[0][1]
        last = max(len(original.context[: span.end].rstrip()) for span in original.rationale)
        assert end == min(end for _, end in sentence_spans(original.context) if end >= last)
        assert ts.context == original.context[:end]
        assert original.answer_type == ts.answer_type
        assert bool(ts.answers) == (original.answer_type != "yes")
        assert all(span.end <= end for span in ts.answers)
    if isinstance(ts, QAExample) and isinstance(ts_r, QAExample):
        assert ts.context.startswith(ts_r.context.removesuffix(ts_r.appended).rstrip())


@given(examples(), st.sampled_from(["ts_r", "os_r"]))
def test_no_rationale_is_left_but_the_answer_is(original: QAExample, variant: Variant) -> None:
    result = perturb(original, variant)
    assume(isinstance(result, QAExample))
    assert isinstance(result, QAExample)
    texts = [span.text for span in original.rationale]
    if variant == "ts_r":
        sentences = sentence_spans(original.context)
        places = [range(span.start, span.end) for span in original.rationale]
        inside = {i for place in places for i in place if not original.context[i].isspace()}
        texts = [original.context[a:b] for a, b in sentences if inside & set(range(a, b))]
        assert texts
    for text in texts:
        assert not naive_occurs(text, result.context) or not any(map(str.isalnum, text))
    if original.answer_type != "yes":
        assert naive_occurs(original.gold[0], result.context)


@given(st.text("ab. '\n", max_size=4), st.text("ab. '\n", max_size=12))
def test_occurrence_equals_a_search_word_by_word(text: str, context: str) -> None:
    assert occurs(text, context) == naive_occurs(text, context)


def test_sentences_of_titles_abbreviations_and_quotations() -> None:
    text = 'A title\n \t\nMr. Li paid 3.50 to J. K. Lee. "We go. No!" he said. \ud800 Zoë 😀 rose.'
    expected = ["A title", "Mr. Li paid 3.50 to J. K. Lee.", '"We go. No!" he said.']
    assert [text[start:end] for start, end in sentence_spans(text)][:3] == expected
    assert text[slice(*sentence_spans(text)[-1])].endswith("Zoë 😀 rose.")


def test_boundaries_agree_with_hotpotqas_own(shared: Path) -> None:
    items = json.loads((shared / "data" / "hotpotqa" / "distractor-100.json").read_text())
    paragraphs = {title: parts for item in items for title, parts in item["context"]}
    differ = total = 0
    for parts in paragraphs.values():
        text = "".join(parts)
        ends = {len("".join(parts[: i + 1]).rstrip()) for i in range(len(parts))}
        ours = {end for _, end in sentence_spans(text)}
        last = {len(text.rstrip())}
        differ += len((ends ^ ours) - last)
        total += len((ends | ours) - last)
    assert total > 3000
    assert differ / total < 0.03
