"""Variants of questions: the one function from originals to data for training, evaluation and
files.

    examples, rejected = made_of(read_questions(source), "ts_r")
    perturb(with_rationale(example), "ts_r")  # a QAExample, or Rejected with its reason

Deletions truncate a story after its rationale, cut it before the rationale, or delete the
rationale, by the rules of Chaturvedi et al. 2023, section 5, on raw text: nothing is tokenised and
offsets count characters. A story without its rationale does not answer its question, so the label
becomes unknown. If the rest of the story lacks the old answer, it is appended as a trap for the
model: a bare phrase, which may reveal that it was appended, or in the +Aug variants a sentence
(edits.yaml, or one of the user's).

Sentences are those of sentencex (Wikimedia), a rule-based segmenter: of the libraries that need no
model it agrees best with HotpotQA's own sentences (2.9 % of the boundaries of 1,000 paragraphs
differ). The authors' code uses spaCy's parser, so counts of truncated stories differ slightly. A
quotation within one line is one sentence.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from random import Random

from interventune.data_modules.questions.answer_spans import answer_span, occurs
from interventune.data_modules.schema.questions import (
    EXCHANGED,
    Outcome,
    Place,
    Places,
    QAExample,
    Rejected,
    Span,
    Variant,
    single_spaced,
    traits,
)
from interventune.storage.documents import DataError

from .edits import FRAMES, Pool, near_miss, pool_of, quoted, reworded, spaced, swap

logger = logging.getLogger(__name__)

Sentences = dict[str, str] | None
"""By id, what `ts_r_aug` and `os_r_aug` append instead of the bare answer; None: frames."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_TRIMMED = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CLOSED = re.compile(r"[.!?][\"'”’)]*$")
_STRAY = re.compile(r"^(?:[,;]\s*|[-–—:]+\s+)+|(?:\s*[,;:]|\s+[-–—])+(?=\s*[.!?]*$)|\s+(?=[.!?]*$)")
"""Punctuation at the ends that belongs to no answer: commas and similar marks, a separate dash."""
_PAIRS = (('"', '"'), ("“", "”"), ("«", "»"), ("(", ")"), ("[", "]"))


def perturb(
    example: QAExample,
    variant: Variant,
    sentences: Sentences = None,
    pool: Pool = Pool({}, {}),  # noqa: B008  never mutated
) -> Outcome:
    """Return one variant of an original with its rationale, or the reason why there is none (edits
    and variants that need other questions: edits.py).

    A variant keeps id, question and history, and the original's references, except for `swap`.
    Everything is deterministic.

    Args:
        example: an original; for `os`, a variant is returned unchanged.
        variant: name of the variant.
        sentences: sentence by id that `ts_r_aug` and `os_r_aug` append instead of the bare answer
            (default: frames).
        pool: material from the other questions of the file for EXCHANGED variants (default: none).

    Raises:
        DataError: the example is already a variant.
    """
    if variant == example.variant == "os":
        return replace(example, kept=((0, len(example.context)),))
    if variant == "os":
        return example
    if example.variant != "os":
        raise DataError(
            f"question {example.id!r}: is a variant already ({example.variant}); name originals"
        )
    # White space justifies no answer.
    rationale = tuple(span for span in example.rationale if span.text.strip())
    example = replace(example, references=example.gold, rationale=rationale)
    match variant:
        case "reworded":
            result = reworded(example)
        case "quoted":
            result = quoted(example)
        case "spaced":
            result = spaced(example)
        case "swap":
            result = swap(example, pool)
        case "near_miss":
            result = near_miss(example, pool)
        case "ts":
            result = truncate(example)
        case _:
            result = delete(example, variant, sentences)
    return result if isinstance(result, Rejected) else replace(result, variant=variant)


def made_of(
    examples: Iterable[QAExample], variant: Variant, sentences: Sentences = None
) -> tuple[list[QAExample], Counter[str]]:
    """Return one variant of the originals that allow it, and the number of the others by reason;
    EXCHANGED ones take answers from these originals.
    """
    examples = list(examples) if variant in EXCHANGED else examples
    pool = pool_of(examples if variant in EXCHANGED else ())
    results = [perturb(with_rationale(example), variant, sentences, pool) for example in examples]
    rejected = Counter(result.reason for result in results if isinstance(result, Rejected))
    return [result for result in results if isinstance(result, QAExample)], rejected


def with_rationale(example: QAExample) -> QAExample:
    """Return an example with its rationale: the annotated one or, in data sets without annotation,
    the sentence with each answer (two, if the answer crosses a boundary): deleting that of the
    first alone would leave the others' evidence. An example without an answer span is returned
    unchanged.
    """
    context = example.context
    places = set()
    if example.rationale or traits(example.dataset).rationales:
        return example
    for answer in example.answers:
        if answer.text.strip():
            crossed = sentences_with(context, [answer])
            places.add((crossed[0][0], crossed[-1][1]))
    spans = (Span(start, end, context[start:end]) for start, end in sorted(places))
    return replace(example, rationale=tuple(spans))


def report_rejected(left: int, rejected: Counter[str], variant: Variant, what: str) -> str:
    """Log how many examples allow the variant, as `kept 3 of 5 (2 no rationale)`; DataError if none
    is left. Return the reasons in their parentheses, or nothing.
    """
    reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    reasons = f" ({reasons})" if reasons else ""
    counts = f"kept {left} of {left + rejected.total()}{reasons}"
    if rejected:
        logger.info("%s, %s: %s", what, variant, counts)
    if not left:
        raise DataError(f"{what}: no question is left in variant {variant}: {counts}")
    return reasons


def truncate(example: QAExample) -> Outcome:
    """TS: the story up to the end of the sentence with the last character of the rationale; for
    unknown answers without a rationale, its first sentence, as in the authors' code.
    """
    if not example.rationale and example.answer_type != "unknown":
        return Rejected("no rationale")
    last = sentences_with(example.context, example.rationale)[-1:]
    last = last or sentence_spans(example.context)[:1]
    if not last:
        return Rejected("empty story")
    end = last[0][1]
    context = example.context[:end]
    # A rationale may end in white space, which is after the cut.
    rationale = tuple(
        Span(s.start, min(s.end, end), s.text[: end - s.start]) for s in example.rationale
    )
    answers = tuple(span for span in example.answers if span.end <= end)
    if example.answers and example.answers[0].end > end:
        scope_end = max((span.end for span in rationale), default=end)
        first = answer_span(example.gold[0], context, rationale, scope_end=scope_end)
        answers = tuple(dict.fromkeys((*first, *answers)))
    return replace(example, context=context, answers=answers, rationale=rationale, kept=((0, end),))


def delete(example: QAExample, variant: Variant, sentences: Sentences) -> Outcome:
    """TS-R: the story up to the sentence in which the rationale begins; OS-R: all but the
    rationale. The answer, or the sentence that replaces it, is appended if the story lacks it.
    """
    context = example.context
    rationale = example.rationale
    if not rationale:
        return Rejected("no rationale")
    if variant.startswith("ts"):
        places = sentences_with(context, rationale)
        pieces: Places = ((0, len(context[: places[0][0]].rstrip())),)
        deleted = [context[start:end] for start, end in places]
        nothing_left = "rationale begins in the first sentence"
    else:
        pieces = delete_rationale(context, rationale)
        deleted = [span.text for span in rationale]
        nothing_left = "nothing left without the rationale"
    deleted = [text for text in deleted if any(map(str.isalnum, text))]
    rest = "".join(context[start:end] for start, end in pieces)
    if not rest.strip():
        return Rejected(nothing_left)
    if not traits(example.dataset).rationales and any(
        start <= answer.start and answer.end <= end
        for answer in example.answers
        for start, end in pieces
    ):
        return Rejected("an annotated answer is left")
    if any(occurs(text, rest) for text in deleted):
        return Rejected("rationale occurs again in the kept text")
    spoken = example.answer_type in ("yes", "no", "unknown")
    appended = "" if spoken else example.gold[0].strip()
    if occurs(appended, rest):
        appended = ""
    if appended and variant.endswith("_aug"):
        sentence = answer_sentence(example, sentences)
        if isinstance(sentence, Rejected):
            return sentence
        appended = sentence
    story = f"{rest} {appended}" if appended else rest
    if any(occurs(text, story) for text in deleted):
        return Rejected("appended text repeats the rationale")
    return example.unanswered(context=story, appended=appended, kept=pieces)


def answer_sentence(example: QAExample, sentences: Sentences = None) -> str | Rejected:
    """Return the sentence for the example's id, if it contains the first gold answer; without
    sentences, a frame around that answer, drawn by the id. There the answer keeps its case and
    loses stray punctuation at its ends, as in `mustard,`; its own full stop ends the sentence.
    """
    answer = bare_answer(example.gold[0])
    if sentences is None:
        stops = re.search(r"[.!?]", answer)
        frames = [frame for frame in FRAMES if frame.endswith("{answer}.") or not stops]
        frame = Random(f"augment/0/{example.id}").choice(frames)
        if _CLOSED.search(answer):
            frame = frame.removesuffix(".")
        return frame.replace("{answer}", answer)
    sentence = sentences.get(example.id, "").strip()
    plain, phrase, *rationale = (
        single_spaced(text.lower())
        for text in (sentence, answer, *(s.text for s in example.rationale))
    )
    if not sentence:
        return Rejected("no sentence")
    if not occurs(phrase.rstrip(".!?") or phrase, plain):  # the sentence has its own full stop
        return Rejected("the sentence lacks the answer")
    if not _CLOSED.search(sentence):
        return Rejected("the sentence has no end")
    if any(plain.count(text) > phrase.count(text) for text in rationale):
        return Rejected("the sentence repeats the rationale")
    return sentence


def bare_answer(answer: str) -> str:
    """Remove stray punctuation from an answer's ends, and reduce its white space to single spaces.

    Commas, colons, dashes and unpaired quotes and brackets are removed; an answer of nothing else
    stays.

    >>> [bare_answer(text) for text in ("mustard,", '"I won!"', "(red", "-5", "a b,.", ",")]
    ['mustard', '"I won!"', 'red', '-5', 'a b.', ',']
    """
    whole = text = single_spaced(answer)
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
    return text if any(map(str.isalnum, text)) else whole


def delete_rationale(context: str, rationale: Sequence[Span]) -> Places:
    """OS-R: the pieces of the story around the rationales, of which only the characters are
    deleted.

    If a rationale was between white space, one of the two is kept (that with more line breaks), at
    the ends of the story none. Rationales separated only by white space are deleted together. If
    only white space remains, there are no pieces.

    Every character has a mark: k if it is kept, s for white space, d if it is deleted.
    """
    marks = ["s" if character.isspace() else "k" for character in context.rstrip()]
    for span in rationale:
        start, end = trim(context, span.start, span.end)
        marks[start:end] = "d" * (end - start)
    text = "".join(marks)
    for run in re.finditer("s*(?:d+s*)+", text):
        spaces = [space.span() for space in re.compile("s+").finditer(text, *run.span())]
        marks[run.start() : run.end()] = "d" * len(run[0])
        if spaces and run.start() > 0 and run.end() < len(text):
            start, end = max(spaces, key=lambda space: context.count("\n", *space))
            marks[start:end] = "k" * (end - start)
    return tuple(piece.span() for piece in re.finditer("[ks]+", "".join(marks)))


def sentences_with(context: str, spans: Iterable[Span]) -> Places:
    """Return the sentences with characters of the spans, the white space at their ends aside."""
    places = [trim(context, span.start, span.end) for span in spans]
    return tuple(
        (start, end)
        for start, end in sentence_spans(context)
        if any(first < end and start < last for first, last in places)
    )


@lru_cache(maxsize=16_384)  # stories; 64 MB at 4 kB each, most of which the questions hold anyway
def sentence_spans(text: str) -> Places:
    """(start, end) of every sentence of an English text, in order, end-exclusive, trimmed of white
    space.

    The spans do not overlap and together cover everything but white space. A blank line always ends
    a sentence.
    """
    from sentencex import get_sentence_boundaries  # not at the top: few runs need it

    # A lone surrogate is not valid UTF-8, which the library needs; replace it by a letter.
    readable = _SURROGATE.sub("x", text)
    paragraphs = [0, *(blank.start() for blank in _BLANK_LINE.finditer(text)), len(text)]
    pieces = (
        trim(text, begin + sentence["start_index"], begin + sentence["end_index"])
        for begin, end in pairwise(paragraphs)
        for sentence in get_sentence_boundaries("en", readable[begin:end])
    )
    return tuple((start, end) for start, end in pieces if start < end)


def trim(text: str, start: int, end: int) -> Place:
    """Return the piece of `text` without white space at its ends; (end, end) if nothing else is
    left.
    """
    match = _TRIMMED.search(text, start, end)
    return match.span() if match else (end, end)
