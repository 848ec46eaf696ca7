"""Interventions on stories: truncate after the rationale, cut before it, or delete it.

    from data_modules.interventions.deletion import perturb, with_rationale
    variant = perturb(example, "ts_r")  # a QAExample, or Rejected with its reason

The paper's rules (faithfulness spec 1.2, 1.5, 1.6) on raw text: nothing is tokenised and offsets count
characters. A story without its rationale does not answer its question, so the label becomes unknown; the old
answer, if the rest of the story lacks it, is put at the end for a model to fall for. Everything is pure and
deterministic.

Sentences are those of sentencex (Wikimedia), a segmenter by rules. Of the libraries that need no model it
agrees best with HotpotQA's own sentences: 2.9 % of the boundaries of 1,000 paragraphs differ, against 3.9 %
(pySBD) and 6.1 % (spaCy's sentencizer), and it is over fifty times faster. The paper's boundaries came from
spaCy's parser (faithfulness spec 0), so counts of truncated stories differ slightly from the paper's. A
quotation that stands in one line is one sentence, however many it holds.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from typing import Literal

from data_modules.questions.answer_spans import last_word, locate_answer
from data_modules.schema import REFORMATTED, QAExample, Rejected, Span, Variant
from storage.errors import DataError

logger = logging.getLogger(__name__)

Piece = tuple[int, int]
"""A part of a story as character offsets, end-exclusive."""

NO_RATIONALE = "no rationale"
FIRST_SENTENCE = "rationale begins in the first sentence"
NOTHING_LEFT = "nothing left beside the rationale"
OCCURS_AGAIN = "rationale occurs again in the kept text"
APPENDED_REPEATS = "appended text repeats the rationale"
NO_SENTENCE = "no generated sentence"
SENTENCE_LACKS_ANSWER = "generated sentence lacks the answer"

TRUNCATED: frozenset[Variant] = frozenset({"ts_r", "ts_r_aug"})
"""Of the variants without a rationale, those that end where it began."""
AUGMENTED: frozenset[Variant] = frozenset({"ts_r_aug", "os_r_aug"})
"""Those that end with a generated sentence in place of the bare answer."""

TEMPLATES = "templates"
"""The generator of their sentences that needs no model."""

Sentences = Mapping[str, str | Rejected]
"""What `_aug` variants append, by the id of the example; or why no sentence was written for it."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_STRAY = re.compile(r"^(?:[,;]\s*|[-–—:]+\s+)+|(?:\s*[,;:]|\s+[-–—])+(?=\s*[.!?]*$)|\s+(?=[.!?]*$)")
"""Punctuation at the ends that belongs to no answer: commas and their like, a dash that stands alone."""
_PAIRS = (('"', '"'), ("“", "”"), ("«", "»"), ("(", ")"), ("[", "]"))
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Rules:  # of spec 1.2, 1.4 and 8
    """the appended answer

    Args:
        presence_test: when an answer counts as still there: as whole words, or as any characters (the
            authors' code).
        append_types: which answers are appended; span leaves out numbers and options (the authors' XLNet).
    """

    presence_test: Literal["token", "substring"] = "token"
    append_types: Literal["all_but_yes_no_unknown", "span"] = "all_but_yes_no_unknown"


PAPER_RULES = Rules()


def perturb(
    example: QAExample,
    variant: Variant,
    *,
    sentence: Sentences | None = None,
    rules: Rules = PAPER_RULES,
    skip_bad: bool = False,
) -> QAExample | Rejected:
    """One variant of an original example, or why there is none (spec 1.2, 1.5, 1.6; reformatting.py).

    `sentence` maps ids to the generated sentences that `ts_r_aug` and `os_r_aug` append in place of the bare
    answer, or to the reason why there is none. A variant keeps id, question and history; its references are
    the original's.

    Raises:
        DataError: an example that is a variant already, an empty story, a rationale that does not fit its
            story. `skip_bad=True` rejects such an example.
    """
    size, bad = len(example.context), ""
    if example.variant != "os":
        bad = f"a variant already ({example.variant})"
    elif not example.context.strip():
        bad = "empty story"
    for span in example.rationale:
        if not 0 <= span.start <= size or not 0 <= span.end <= size:
            bad = bad or "rationale outside its story"
        elif span.start > span.end:
            bad = bad or "rationale ends before it begins"
        elif example.context[span.start : span.end] != span.text:
            bad = bad or "rationale is not the text at its offsets"
        elif not span.text.strip():
            bad = bad or "empty rationale"
    ordered = sorted(example.rationale, key=lambda span: span.start)
    if any(second.start < first.end for first, second in pairwise(ordered)):
        bad = bad or "rationales overlap"
    if bad and skip_bad:
        return Rejected(example.id, bad)
    if bad:
        raise DataError(
            f"example {example.id!r}: {bad}; mend this example, or leave out such ones (skip_bad)"
        )
    if variant == "os":
        return replace(example, kept=((0, size),))
    if variant in REFORMATTED:
        from data_modules.interventions.reformatting import reformat  # a run that deletes does without it

        return reformat(example, variant)
    if not example.rationale and (variant != "ts" or example.answer_type != "unknown"):
        return Rejected(example.id, NO_RATIONALE)
    if variant == "ts":
        return _truncated(example)
    return _deleted(example, variant, sentence or {}, rules)


def _truncated(example: QAExample) -> QAExample:
    """TS: the story up to the end of the sentence that holds the last character of the rationale; without a
    rationale its first sentence, the paper's rule for unknown answers."""
    sentences = sentence_spans(example.context)
    last = max((trim(example.context, span.start, span.end)[1] for span in example.rationale), default=1)
    end = next(end for _, end in sentences if last <= end)
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
        references=example.gold,
        variant="ts",
        kept=((0, end),),
    )


def _deleted(example: QAExample, variant: Variant, sentence: Sentences, rules: Rules) -> QAExample | Rejected:
    """TS-R: the story up to the sentence in which the rationale begins; OS-R: all but the rationale. Behind
    it the answer, or the sentence that stands for it, if it is not there already."""
    context, rationale = example.context, example.rationale
    if variant in TRUNCATED:
        ends = [trim(context, span.start, span.end) for span in rationale]
        sentences, first = sentence_spans(context), min(ends)[0]
        end = len(context[: next(start for start, end in sentences if first < end)].rstrip())
        pieces: tuple[Piece, ...] = ((0, end),) if end else ()
        deleted = [
            context[start:end]
            for start, end in sentences
            if any(first < end and start < last for first, last in ends)
        ]
    else:
        pieces, deleted = delete_rationale(context, rationale), [span.text for span in rationale]
    deleted = [text for text in deleted if any(character.isalnum() for character in text)]
    kept = "".join(context[start:end] for start, end in pieces)
    if not kept.strip():
        return Rejected(example.id, FIRST_SENTENCE if variant in TRUNCATED else NOTHING_LEFT)
    if any(occurs(text, kept) for text in deleted):
        return Rejected(example.id, OCCURS_AGAIN)
    appended = ""
    if example.answer_type == "span" or (
        rules.append_types != "span" and example.answer_type in ("number", "option")
    ):
        answer = example.gold[0].strip()
        present = answer in kept if rules.presence_test == "substring" else occurs(answer, kept)
        appended = "" if present else answer
    if appended and variant in AUGMENTED:
        written = sentence.get(example.id, Rejected(example.id, NO_SENTENCE))
        if isinstance(written, Rejected):
            return written
        appended = written.strip()
        if not contains_answer(appended, answer):
            return Rejected(example.id, SENTENCE_LACKS_ANSWER)
    text = f"{kept} {appended}" if appended else kept
    if appended and any(occurs(piece, text) for piece in deleted):
        return Rejected(example.id, APPENDED_REPEATS)
    return replace(
        example,
        context=text,
        answers=(),
        answer_type="unknown",
        rationale=(),
        references=example.gold,
        variant=variant,
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
            end = ordered[index][1]
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


def contains_answer(sentence: str, answer: str) -> bool:
    """Whether a sentence holds an answer as whole words, in any case, without its stray punctuation and its
    full stop: the sentence brings its own."""
    bare = bare_answer(answer)
    return occurs((bare.rstrip(".!?") or bare).lower(), sentence.lower())


def bare_answer(answer: str) -> str:
    """An answer without stray punctuation at its ends, its white space made single.

    Commas, colons and dashes go, and a quotation mark or bracket whose partner is missing; an answer of
    nothing else stays.

    >>> [bare_answer(text) for text in ("mustard,", "- Tom", '"I won!"', "(red", "-5", "U.S.", "a b,.", ",")]
    ['mustard', 'Tom', '"I won!"', 'red', '-5', 'U.S.', 'a b.', ',']
    """
    whole = text = " ".join(answer.split())
    before = ""
    while text != before:
        before = text
        text = _STRAY.sub("", text)
        for left, right in _PAIRS:
            lone = text.count(left) % 2 if left == right else text.count(left) - text.count(right)
            if lone > 0 and text.startswith(left):
                text = text.removeprefix(left)
            elif lone and (left == right or lone < 0):
                body = text.rstrip(".!?")
                text = body.removesuffix(right) + text[len(body) :]
    return text if any(character.isalnum() for character in text) else whole


ANNOTATED = frozenset({"coqa", "hotpotqa", "stories"})
"""Data sets whose rationales are annotated: a question without one has none."""


def with_rationale(example: QAExample) -> QAExample:
    """An example with its rationale: the annotated one; in data sets without such annotation the sentence
    that holds the first answer (two, if the answer runs over a boundary). An example without an answer span
    stays as it is."""
    if example.rationale or example.dataset in ANNOTATED:
        return example
    if not example.answers or not example.answers[0].text.strip():
        return example
    first, last = trim(example.context, example.answers[0].start, example.answers[0].end)
    spans = [(start, end) for start, end in sentence_spans(example.context) if first < end and start < last]
    start, end = spans[0][0], spans[-1][1]
    return replace(example, rationale=(Span(start, end, example.context[start:end]),))


def report_rejected(kept: int, rejected: Counter[str], variant: Variant, what: str) -> None:
    """Log how many examples allow no such variant, as `kept 3 of 5 (2 no rationale)`; DataError where none
    does."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    counts = f"kept {kept} of {kept + rejected.total()}" + (f" ({reasons})" if reasons else "")
    if rejected:
        logger.info("%s, %s: %s", what, variant, counts)
    if not kept:
        raise DataError(f"{what}: no question is left in variant {variant}: {counts}")


@lru_cache(maxsize=16_384)  # stories; at 4 kB each 64 MB, most of which the questions hold anyway
def sentence_spans(text: str) -> tuple[Piece, ...]:
    """(start, end) of every sentence of an English text, in order, end-exclusive, trimmed of white space.

    The spans do not overlap and together cover everything but white space. A blank line always ends a
    sentence. Cached, because all questions about a story and all its variants share it.
    """
    from sentencex import get_sentence_boundaries  # here: nobody pays for it who needs no boundaries

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


def sentence_library() -> str:
    """Name and version of what draws the boundaries, for a run's records."""
    return f"sentencex {version('sentencex')}"
