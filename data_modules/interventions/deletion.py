"""Interventions on stories: truncate after the rationale, cut before it, or delete it.

    from data_modules.interventions.deletion import perturb, with_rationale
    variant = perturb(example, "ts_r")  # a QAExample, or Rejected with its reason

The paper's rules (faithfulness spec 1.2, 1.5, 1.6) on raw text: nothing is tokenised and offsets count
characters. A story without its rationale does not answer its question, so the label becomes unknown; the old
answer, if the rest of the story lacks it, is put at the end for a model to fall for. Everything is pure and
deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from data_modules.interventions.sentences import sentence_spans, trim
from data_modules.questions.answer_spans import last_word, locate_answer
from data_modules.schema import QAExample, Rejected, Span, Variant
from storage.errors import DataError

Piece = tuple[int, int]
"""A part of a story as character offsets, end-exclusive."""

PresenceTest = Literal["token", "substring"]
AppendTypes = Literal["all_but_yes_no_unknown", "span"]

_WORD = re.compile(r"\w")

NO_RATIONALE = "no rationale"
FIRST_SENTENCE = "rationale begins in the first sentence"
NOTHING_LEFT = "nothing left beside the rationale"
OCCURS_AGAIN = "rationale occurs again in the kept text"
APPENDED_REPEATS = "appended text repeats the rationale"
NO_SENTENCE = "no generated sentence"
SENTENCE_LACKS_ANSWER = "generated sentence lacks the answer"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is put behind a story whose rationale is deleted (spec 1.2, 1.4, 8)."""

    presence_test: PresenceTest = "token"
    """When the kept text already has the answer: as whole words, or (the authors' code) as any characters, so
    that "he" is found in "the". Both mind upper and lower case."""
    append_types: AppendTypes = "all_but_yes_no_unknown"
    """For which answers: all but yes, no and unknown (the authors' BERT and RoBERTa), or spans alone, without
    numbers and options (their XLNet)."""


PAPER_RULES = Rules()

TRUNCATED: frozenset[Variant] = frozenset({"ts_r", "ts_r_aug"})
"""Of the variants without a rationale, those that end where it began."""
AUGMENTED: frozenset[Variant] = frozenset({"ts_r_aug", "os_r_aug"})
"""Those that end with a generated sentence in place of the bare answer."""


class ExampleError(DataError):
    """An example that contradicts itself; `reason` is short enough to be counted."""

    def __init__(self, example: QAExample, reason: str) -> None:
        super().__init__(
            f"example {example.id!r}: {reason}; mend this example, or leave out such ones (skip_bad)"
        )
        self.reason = reason


def perturb(
    example: QAExample,
    variant: Variant,
    *,
    sentence: Mapping[str, str] | None = None,
    rules: Rules = PAPER_RULES,
) -> QAExample | Rejected:
    """One variant of an original example, or why there is none (spec 1.2, 1.5, 1.6).

    `sentence` maps ids to the generated sentences that `ts_r_aug` and `os_r_aug` append in place of the bare
    answer. A variant keeps id, question and history; its references are the original's. Raises ExampleError
    for an example that is a variant already, an empty story and a rationale that does not fit its story.
    """
    check_example(example)
    if variant == "os":
        return replace(example, kept=((0, len(example.context)),))
    if not example.rationale and example.answer_type != "unknown":
        return Rejected(example.id, NO_RATIONALE)
    if variant == "ts":
        return _truncated(example)
    return _deleted(example, variant, sentence or {}, rules)


def perturb_all(
    examples: Iterable[QAExample],
    variant: Variant,
    *,
    sentence: Mapping[str, str] | None = None,
    rules: Rules = PAPER_RULES,
    skip_bad: bool = False,
) -> Iterator[QAExample | Rejected]:
    """`perturb` on every example, in order; `skip_bad=True` rejects bad ones and raises nothing."""
    for example in examples:
        try:
            yield perturb(example, variant, sentence=sentence, rules=rules)
        except ExampleError as error:
            if not skip_bad:
                raise
            yield Rejected(example.id, error.reason)


def check_example(example: QAExample) -> None:
    """Raise ExampleError for what no intervention can be applied to."""
    size = len(example.context)
    if example.variant != "os":
        raise ExampleError(example, f"a variant already ({example.variant})")
    if not example.context.strip():
        raise ExampleError(example, "empty story")
    for span in example.rationale:
        if not 0 <= span.start <= size or not 0 <= span.end <= size:
            raise ExampleError(example, "rationale outside its story")
        if span.start > span.end:
            raise ExampleError(example, "rationale ends before it begins")
        if example.context[span.start : span.end] != span.text:
            raise ExampleError(example, "rationale is not the text at its offsets")
        if not span.text.strip():
            raise ExampleError(example, "empty rationale")
    ordered = sorted(example.rationale, key=lambda span: span.start)
    if any(second.start < first.end for first, second in pairwise(ordered)):
        raise ExampleError(example, "rationales overlap")


def truncate_story(context: str, rationale: Sequence[Span]) -> int:
    """TS: where the story ends if it is kept up to the end of the sentence that holds the last character of
    the rationale; without a rationale, after the first sentence, the paper's rule for unknown answers."""
    sentences = sentence_spans(context)
    if not rationale:
        return sentences[0][1]
    last = max(trim(context, span.start, span.end)[1] for span in rationale) - 1
    return next(end for _, end in sentences if last < end)


def cut_before_rationale(context: str, rationale: Sequence[Span]) -> int:
    """TS-R: where the story ends if everything goes from the sentence in which the rationale begins; 0 where
    that is the first sentence."""
    first = min(trim(context, span.start, span.end)[0] for span in rationale)
    start = next(start for start, end in sentence_spans(context) if first < end)
    return len(context[:start].rstrip())


def delete_rationale(context: str, rationale: Sequence[Span]) -> tuple[Piece, ...]:
    """OS-R: the pieces of the story beside the rationales, whose characters alone are deleted.

    Where a rationale stood between white space, one of the two is kept (that with more line breaks); at the
    ends of the story none is. Nothing but white space left: no pieces.
    """
    pieces: list[Piece] = []
    position, story_end = 0, len(context.rstrip())
    for start, end, blank in _gaps(context, rationale):
        pieces.append((position, start))
        if start > 0 and end < len(context):
            pieces.append(blank)
        position = end
    pieces.append((position, story_end))
    return _joined(piece for piece in pieces if piece[0] < piece[1])


def _gaps(context: str, rationale: Sequence[Span]) -> Iterator[tuple[int, int, Piece]]:
    """(start, end, white space to keep) of what goes: rationales that only white space parts go together."""
    ordered = sorted(trim(context, span.start, span.end) for span in rationale)
    index = 0
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
        yield left, right, max(blanks, key=lambda blank: (context.count("\n", *blank), blank[1] > blank[0]))


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same pieces, those that touch each other as one."""
    joined: list[Piece] = []
    for start, end in pieces:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return tuple(joined)


def rationale_sentences(context: str, rationale: Sequence[Span]) -> list[str]:
    """Every sentence of which a rationale holds some part."""
    ends = [trim(context, span.start, span.end) for span in rationale]
    return [
        context[start:end]
        for start, end in sentence_spans(context)
        if any(first < end and start < last for first, last in ends)
    ]


def occurs(text: str, context: str) -> bool:
    """Whether `text` stands in `context`, case and all, cutting no word in two; white space counts as one."""
    text, context = " ".join(text.split()), " ".join(context.split())
    if text not in context:
        return False
    before, after = r"(?<!\w)" * bool(_WORD.match(text[:1])), r"(?!\w)" * bool(_WORD.match(text[-1:]))
    return re.search(before + re.escape(text) + after, context) is not None


def is_present(answer: str, kept: str, test: PresenceTest = "token") -> bool:
    """Whether the kept text has the answer already (spec 1.2), see `Rules.presence_test`."""
    return answer in kept if test == "substring" else occurs(answer, kept)


def with_rationale(example: QAExample) -> QAExample:
    """An example whose rationale is the sentence that holds its first answer (two, if the answer runs over a
    boundary): what any extractive data needs for interventions. Examples that have one, or no span to take it
    from, stay as they are."""
    if example.rationale or not example.answers or not example.answers[0].text.strip():
        return example
    first, last = trim(example.context, example.answers[0].start, example.answers[0].end)
    held = [(start, end) for start, end in sentence_spans(example.context) if first < end and start < last]
    start, end = held[0][0], held[-1][1]
    return replace(example, rationale=(Span(start, end, example.context[start:end]),))


def _truncated(example: QAExample) -> QAExample:
    end = truncate_story(example.context, example.rationale)
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


def _deleted(
    example: QAExample, variant: Variant, sentence: Mapping[str, str], rules: Rules
) -> QAExample | Rejected:
    if not example.rationale:
        return Rejected(example.id, NO_RATIONALE)
    pieces, deleted = _cut(example, variant)
    kept = "".join(example.context[start:end] for start, end in pieces)
    if not kept.strip():
        return Rejected(example.id, FIRST_SENTENCE if variant in TRUNCATED else NOTHING_LEFT)
    if any(occurs(text, kept) for text in deleted):
        return Rejected(example.id, OCCURS_AGAIN)
    appended = _to_append(example, kept, rules)
    if appended and variant in AUGMENTED:
        if example.id not in sentence:
            return Rejected(example.id, NO_SENTENCE)
        answer, appended = appended, sentence[example.id].strip()
        if not occurs(answer.lower(), appended.lower()):
            return Rejected(example.id, SENTENCE_LACKS_ANSWER)
    context = f"{kept} {appended}" if appended else kept
    if appended and any(occurs(text, context) for text in deleted):
        return Rejected(example.id, APPENDED_REPEATS)
    return replace(
        example,
        context=context,
        answers=(),
        answer_type="unknown",
        rationale=(),
        references=example.gold,
        variant=variant,
        appended=appended,
        kept=pieces,
    )


def _cut(example: QAExample, variant: Variant) -> tuple[tuple[Piece, ...], list[str]]:
    """The pieces that a deletion keeps, and the texts that may not occur in them."""
    context, rationale = example.context, example.rationale
    if variant in TRUNCATED:
        end = cut_before_rationale(context, rationale)
        pieces: tuple[Piece, ...] = ((0, end),) if end else ()
        deleted = rationale_sentences(context, rationale)
    else:
        pieces = delete_rationale(context, rationale)
        deleted = [span.text for span in rationale]
    return pieces, [text for text in deleted if any(character.isalnum() for character in text)]


def _to_append(example: QAExample, kept: str, rules: Rules) -> str:
    """The answer that goes behind the kept text; empty if it is there already or no answer of text."""
    if example.answer_type in ("yes", "no", "unknown"):
        return ""
    if rules.append_types == "span" and example.answer_type != "span":
        return ""
    answer = example.gold[0].strip()
    return "" if is_present(answer, kept, rules.presence_test) else answer
