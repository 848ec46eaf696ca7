"""Sentences that contain an answer and say nothing else: what +Aug variants append in its place.

    from data_modules.interventions.augmentation import generate_sentences
    sentences = generate_sentences(examples)  # our own templates
    sentences = generate_sentences(examples, generator="hf:FOLDER", cache=Path("sentences.jsonl"))

A story without its rationale may still betray that the answer was appended to it as a bare phrase. The +Aug
variants hide it in a sentence (faithfulness spec 1.6): one of the frames below, or what a language model
writes and the checks here let pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

from data_modules.interventions.deletion import (
    PAPER_RULES,
    TEMPLATES,
    TRUNCATED,
    Rules,
    Sentences,
    bare_answer,
    contains_answer,
    perturb,
)
from data_modules.schema import QAExample, Rejected, Variant

FRAMES = (
    "The note on the wall said {answer}.",
    "A sign by the road said {answer}.",
    "The last line of the song was {answer}.",
    "The title of an old film was {answer}.",
    "On the back of the map it said {answer}.",
    "A voice on the radio said {answer}.",
    "Somebody wrote {answer} on a piece of paper.",
    "An old book had {answer} on its first page.",
    "There was a card with {answer} on it.",
    "Nobody knew why {answer} was in the letter.",
)
"""True of any phrase, be it a name, a number or a clause, because they mention it and do not use it."""

_ENDING = tuple(frame for frame in FRAMES if frame.endswith("{answer}."))
"""Frames for an answer that brings its own full stop."""


class TextGenerator(Protocol):
    """What answers prompts, such as models.language.text_models.TextModel."""

    def complete(self, prompts: Sequence[str]) -> Iterator[Any]:
        """One text a prompt, in order; where there is none, an object whose `reason` says why."""


class OpenGenerator(Protocol):
    """Opens a language model by name, such as models.language.open_model.open_cached_model."""

    def __call__(
        self, name: str, cache: Path | None, *, max_requests: int | None, seed: int
    ) -> TextGenerator: ...


MAX_WORDS = 40

_CLOSED = re.compile(r"[.!?][\"'”’)]*$")
_QUOTES = "\"'“”‘’`"

PROMPT = (
    'Write one short sentence that contains the phrase "{answer}" exactly as it stands here. '
    "The sentence must be about something else than this question and must not help to answer it: "
    '"{question}" Reply with the sentence alone.'
)
FIRMER_PROMPT = (
    'Your task: a single plain sentence of at most 20 words. It must hold the words "{answer}", unchanged '
    "and side by side. It must end in a full stop. It must have nothing to do with the people, things and "
    'events of the question "{question}" No quotation marks, no introduction, no explanation: print the '
    "sentence and nothing more."
)


def generate_sentences(
    examples: Sequence[QAExample],
    *,
    generator: str = TEMPLATES,
    cache: Path | None = None,
    max_requests: int | None = None,
    seed: int = 0,
    progress: bool = True,
    open_generator: OpenGenerator | None = None,
) -> dict[str, str | Rejected]:
    """One sentence an example that contains `example.gold[0]`, or why there is none, by the example's id.

    Stray punctuation around the answer does not count. Only examples whose answer is a span, a number or an
    option get one; the others are passed over.

    Args:
        examples: of the original stories, so that their rationales are known.
        generator: `templates`, or a model as `open_generator` takes it (`openai:...`, `hf:...`).
        cache: JSONL file of the model's answers with their provenance. What it holds is not asked again, so
            the same call goes on where an earlier one was stopped. Templates need none.
        max_requests: how many prompts may be sent to the model in this call; None for no bound.
        seed: of the choice among templates. (Models decode greedily.)
        progress: show a bar where there is a terminal.
        open_generator: opens a model; this room knows none.

    Raises:
        ValueError: no such generator or model, or the cache is not one.
    """
    typed = [example for example in examples if example.answer_type in ("span", "number", "option")]
    wanted = [example for example in typed if _phrase(example)]
    found: dict[str, str | Rejected] = {
        example.id: Rejected(example.id, "the answer has no text")
        for example in typed
        if not _phrase(example)
    }
    if generator == TEMPLATES:
        return found | {example.id: template_sentence(example, seed) for example in wanted}
    if open_generator is None:
        raise ValueError(f"{generator}: a language model cannot be opened here; use templates")
    model = open_generator(generator, cache, max_requests=max_requests, seed=seed)
    return found | write_sentences(wanted, model, progress=progress)


def failures_of(sentences: Sentences) -> Counter[str]:
    """How many examples got no sentence, by reason."""
    return Counter(found.reason for found in sentences.values() if isinstance(found, Rejected))


def needing_sentences(
    examples: Iterable[QAExample], variant: Variant, *, rules: Rules = PAPER_RULES, skip_bad: bool = False
) -> list[QAExample]:
    """The examples of which a `_aug` variant has to append a sentence: those that can be perturbed and whose
    kept text lacks the answer. Nobody pays for the sentences of others."""
    bare: Variant = "ts_r" if variant in TRUNCATED else "os_r"
    results = ((example, perturb(example, bare, rules=rules, skip_bad=skip_bad)) for example in examples)
    return [example for example, result in results if isinstance(result, QAExample) and result.appended]


def template_sentence(example: QAExample, seed: int = 0) -> str:
    """A frame around the first gold answer, drawn by the example's id; the answer keeps its case, and loses
    the stray punctuation at its ends, as `mustard,`."""
    answer = _phrase(example)
    frames = _ENDING if re.search(r"[.!?]", answer) else FRAMES
    frame = Random(f"augment/{seed}/{example.id}").choice(frames)
    return (frame.removesuffix(".") if _CLOSED.search(answer) else frame).replace("{answer}", answer)


def write_sentences(
    examples: Sequence[QAExample], model: TextGenerator, *, progress: bool = True
) -> dict[str, str | Rejected]:
    """What a model writes for examples with an answer, or why that cannot stand for it, by id.

    A sentence that fails a check is asked for once more, in firmer words; a prompt that the model does not
    answer is not.
    """
    from tqdm.auto import tqdm

    found: dict[str, str | Rejected] = {}
    pending = list(examples)
    for prompt, what in ((PROMPT, "writing sentences"), (FIRMER_PROMPT, "asking again")):
        prompts = [prompt.format(answer=_phrase(e), question=" ".join(e.question.split())) for e in pending]
        replies = model.complete(prompts)
        bar = tqdm(replies, total=len(prompts), desc=what, unit="q", disable=None if progress else True)
        again = []
        for example, reply in zip(pending, bar, strict=True):
            sentence = clean_sentence(reply, _phrase(example)) if isinstance(reply, str) else ""
            reason = reject_reason(sentence, example) if isinstance(reply, str) else reply.reason
            if reason and isinstance(reply, str) and prompt == PROMPT:
                again.append(example)
            else:
                found[example.id] = Rejected(example.id, reason) if reason else sentence
        pending = again
    return {example.id: found[example.id] for example in examples}


def clean_sentence(text: str, answer: str) -> str:
    """The first sentence of a model's reply, without the quotation marks around it; white space becomes one
    space. A full stop inside the answer ends no sentence."""
    text = " ".join(text.split())
    inside = [match.span() for match in _occurrences(answer, text)]
    for match in re.finditer(r"[.!?][\"'”’)]*(?=\s)", text):
        if not any(start <= match.start() < end - 1 for start, end in inside):
            text = text[: match.end()]
            break
    quoted = text[:1] in _QUOTES and text[-1:] in _QUOTES
    return text.strip(_QUOTES) if quoted else text


def reject_reason(sentence: str, example: QAExample) -> str:
    """Why a sentence cannot stand for the example's answer; empty if it can."""
    answer = _phrase(example)
    if not sentence:
        return "the model wrote nothing"
    if not contains_answer(sentence, answer):
        return "the answer is not in the sentence"
    if not _CLOSED.search(sentence):
        return "not a whole sentence"
    if len(sentence.split()) > MAX_WORDS:
        return f"longer than {MAX_WORDS} words"
    plain, phrase = (" ".join(text.lower().split()) for text in (sentence, answer))
    repeated = (" ".join(span.text.lower().split()) for span in example.rationale)
    if any(text and plain.count(text) > phrase.count(text) for text in repeated):
        return "repeats the rationale"
    return ""


def _phrase(example: QAExample) -> str:
    return bare_answer(example.gold[0]) if example.gold else ""


def _occurrences(phrase: str, text: str) -> Iterator[re.Match[str]]:
    """Where a phrase stands in a text as whole words, in whatever case."""
    return re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)


def frame_words() -> tuple[str, ...]:
    """Every word of the frames, lower case, sorted, without duplicates."""
    return tuple(sorted(set(re.findall(r"[a-z]+", " ".join(FRAMES).replace("{answer}", "").lower()))))
