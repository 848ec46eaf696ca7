"""Deletions: truncate a story after its rationale, cut it before the rationale, or delete the rationale.

The paper's rules (faithfulness spec 1.2, 1.5, 1.6) on raw text: nothing is tokenised and offsets count
characters. A story without its rationale does not answer its question, so the label becomes unknown; the old
answer, if the rest of the story lacks it, is put at the end for a model to fall for.

Sentences are those of sentencex (Wikimedia), a segmenter by rules: of the libraries that need no model it
agrees best with HotpotQA's own sentences (2.9 % of the boundaries of 1,000 paragraphs differ). The paper's
came from spaCy's parser (spec 0), so counts of truncated stories differ slightly. A quotation that stands in
one line is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from data_modules.questions.answer_spans import last_word, locate_answer
from data_modules.schema import QAExample, Rejected, Span, Variant

Piece = tuple[int, int]
"""A part of a story as character offsets, end-exclusive."""


TRUNCATED: frozenset[Variant] = frozenset({"ts_r", "ts_r_aug"})
"""Of the variants without a rationale, those that end where it began."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


def truncate(example: QAExample) -> QAExample | Rejected:
    """TS: the story up to the end of the sentence that holds the last character of the rationale; of unknown
    answers without a rationale its first sentence, the paper's rule."""
    if not example.rationale and example.answer_type != "unknown":
        return Rejected(example.id, "no rationale")
    if not example.context.strip():
        return Rejected(example.id, "empty story")
    last = max((trim(example.context, span.start, span.end)[1] for span in example.rationale), default=1)
    end = next(end for _, end in sentence_spans(example.context) if last <= end)
    context = example.context[:end]
    # A rationale may end in white space, which lies beyond the cut.
    rationale = tuple(Span(s.start, min(s.end, end), s.text[: end - s.start]) for s in example.rationale)
    answers = tuple(span for span in example.answers if span.end <= end)
    if example.answers and example.answers[0].end > end:
        scope_end = max((span.end for span in rationale), default=end)
        found = locate_answer(example.gold[0], context, rationale, scope_end=scope_end)
        found = found or last_word(rationale)  # as where the whole story shares no word with the answer
        answers = tuple(dict.fromkeys(span for span in (found, *answers) if span))
    return replace(
        example,
        context=context,
        answers=answers,
        rationale=rationale,
        kept=((0, end),),
    )


def delete(
    example: QAExample, variant: Variant, sentence_of: Callable[[QAExample], str | Rejected] | None = None
) -> QAExample | Rejected:
    """TS-R: the story up to the sentence in which the rationale begins; OS-R: all but the rationale. Behind
    it the answer, or the sentence that stands for it, if it is not there already."""
    context, rationale = example.context, example.rationale
    if not rationale:
        return Rejected(example.id, "no rationale")
    if variant in TRUNCATED:
        places = [trim(context, span.start, span.end) for span in rationale]
        sentences, first = sentence_spans(context), min(places)[0]
        end = len(context[: next(start for start, end in sentences if first < end)].rstrip())
        pieces: tuple[Piece, ...] = ((0, end),) if end else ()
        deleted = [
            context[start:end]
            for start, end in sentences
            if any(first < end and start < last for first, last in places)
        ]
    else:
        pieces, deleted = delete_rationale(context, rationale), [span.text for span in rationale]
    deleted = [text for text in deleted if any(character.isalnum() for character in text)]
    kept = "".join(context[start:end] for start, end in pieces)
    if not kept.strip() and variant in TRUNCATED:
        return Rejected(example.id, "rationale begins in the first sentence")
    if not kept.strip():
        return Rejected(example.id, "nothing left beside the rationale")
    if any(occurs(text, kept) for text in deleted):
        return Rejected(example.id, "rationale occurs again in the kept text")
    appended = example.gold[0].strip() if example.answer_type in ("span", "number", "option") else ""
    if occurs(appended, kept):
        appended = ""
    if appended and sentence_of:
        sentence = sentence_of(example)
        if isinstance(sentence, Rejected):
            return sentence
        appended = sentence
    text = f"{kept} {appended}" if appended else kept
    if appended and any(occurs(piece, text) for piece in deleted):
        return Rejected(example.id, "appended text repeats the rationale")
    return replace(
        example,
        context=text,
        answers=(),
        answer_type="unknown",
        rationale=(),
        appended=appended,
        kept=pieces,
    )


def delete_rationale(context: str, rationale: Sequence[Span]) -> tuple[Piece, ...]:
    """OS-R: the pieces of the story beside the rationales, whose characters alone are deleted.

    Where a rationale stood between white space, one of the two is kept (that with more line breaks); at the
    ends of the story none is. Rationales that only white space parts go together. Nothing but white space
    left: no pieces.
    """
    ordered = sorted(trim(context, span.start, span.end) for span in rationale)
    pieces: list[Piece] = []
    position = index = 0
    while index < len(ordered):
        start, end = ordered[index]
        left = len(context[:start].rstrip())
        blanks = [(left, start)]
        while True:
            right = len(context) - len(context[end:].lstrip())
            blanks.append((end, right))
            index += 1
            if index == len(ordered) or ordered[index][0] > right:
                break
            end = max(end, ordered[index][1])
        pieces.append((position, left))
        if left > 0 and right < len(context):
            pieces.append(max(blanks, key=lambda piece: (context.count("\n", *piece), piece[1] > piece[0])))
        position = right
    pieces.append((position, len(context.rstrip())))
    joined: list[Piece] = []  # those that touch each other as one
    for start, end in pieces:
        if start < end:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
    return tuple(joined)


def occurs(text: str, context: str) -> bool:
    """Whether `text` stands in `context`, case and all, cutting no word in two; white space counts as one."""
    text, context = " ".join(text.split()), " ".join(context.split())
    if text not in context:
        return False
    before, after = r"(?<!\w)" * bool(re.match(r"\w", text)), r"(?!\w)" * bool(re.match(r"\w", text[-1:]))
    return re.search(before + re.escape(text) + after, context) is not None


@lru_cache(maxsize=16_384)  # stories; at 4 kB each 64 MB, most of which the questions hold anyway
def sentence_spans(text: str) -> tuple[Piece, ...]:
    """(start, end) of every sentence of an English text, in order, end-exclusive, trimmed of white space.

    The spans do not overlap and together cover everything but white space. A blank line always ends a
    sentence.
    """
    from sentencex import get_sentence_boundaries  # here: runs without boundaries do not load it

    spans = []
    begin = 0
    for paragraph_end in (*(match.start() for match in _BLANK_LINE.finditer(text)), len(text)):
        # Half of a broken character pair has no place in UTF-8, which the library needs; a letter does too.
        paragraph = _SURROGATE.sub("x", text[begin:paragraph_end])
        ends = [begin + boundary["end_index"] for boundary in get_sentence_boundaries("en", paragraph)]
        for start, end in pairwise([begin, *ends, paragraph_end]):
            trimmed = trim(text, start, end)
            if trimmed[0] < trimmed[1]:
                spans.append(trimmed)
        begin = paragraph_end
    return tuple(spans)


def trim(text: str, start: int, end: int) -> Piece:
    """The same piece of `text` without white space at its ends; (end, end) for a piece of nothing else."""
    piece = text[start:end]
    first = end - len(piece.lstrip())
    return first, max(start + len(piece.rstrip()), first)
