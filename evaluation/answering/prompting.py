"""Language models as answerers: questions become prompts, and what the model writes becomes a short answer.

    --checkpoint base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini --requests answers.jsonl
    --checkpoint uqa=hf:allenai/unifiedqa-t5-base --prompt unifiedqa

A model answers as free text; a local one also scores given texts, which is what group bias needs.

Shape letters: N groups, V the four variants, S the two subjects, M pairs of a prompt and a continuation.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tqdm.auto import tqdm

from data_modules.encoding.windows import query_text
from data_modules.schema import Group, QAExample, Turn, UnderspecifiedQuestion
from evaluation.answering.answerers import LANGUAGE_MODELS, Said
from models.language.open_model import open_text_model
from models.language.text_models import TextFailure, TextModel

if TYPE_CHECKING:
    from torch import Tensor

PromptStyle = Literal["plain", "unifiedqa"]
"""`unifiedqa` is how UnifiedQA was trained: lower case, the question first, its parts split by a backslash
and an n (two characters: T5's vocabulary has no line break)."""

TURNS = 2
"""Earlier turns of a conversation in a prompt, as the papers' models get (faithfulness spec 6.18)."""
GROUPS_AT_ONCE = 32


class Wording(NamedTuple):
    """The templates of a style."""

    question: str
    """With {story}, {turns}, and the question: {query} with its advice, or {advice} and {question} apart."""
    turn: str
    """An earlier {question} with its {answer}."""
    choice: str
    """The same as `question`, with the two subjects as {first} and {second}."""
    lower: bool


WORDINGS: dict[PromptStyle, Wording] = {
    "plain": Wording(
        question="Text: {story}\n\n{turns}Question: {query}\n"
        "Reply with a few words of the text, or with yes or no, or with unknown if the text does not say.\n"
        "Answer:",
        turn="Question: {question}\nAnswer: {answer}\n",
        choice="Text: {story}\n\nQuestion: {query}\nReply with {first} or {second}.\nAnswer:",
        lower=False,
    ),
    "unifiedqa": Wording(
        question="{turns}{question} \\n {story} {advice}",
        turn="{question} {answer} ",
        choice="{question} \\n (a) {first} (b) {second} \\n {story} {advice}",
        lower=True,
    ),
}

_PREFIX = re.compile(r"\s*(?:(?:the|final|short)\s+)*answer(?:\s+is)?\s*:", re.I)
_QUOTES = dict(zip("\"'`*“‘«", "\"'`*”’»", strict=True))
"""Marks that stand around an answer, and those that end it."""
_YES_NO = re.compile(
    r"[\"'`*“‘]*(yes|no|unknown)(?!\.\s*\d)[\"'`*”’]*"
    r"(?:[.,;:!?…]+[\"'`*”’]*(?:\s|$)|\s*[–—]|\s+-\s|\s*\(|$)",
    re.I,
)
_NO_ANSWER = re.compile(r"<?no answer>?", re.I)


class PromptedModel:
    """A language model that answers questions.

    Args:
        model: writes the texts; remembers them where it should (`CachedTextModel`).
        prompt: the style of prompts.
        scorer: gives likelihoods of subjects (`group_scores`); by default `model`.
    """

    typed = True
    """It can say yes, no and unknown."""

    def __init__(
        self, model: TextModel, *, prompt: PromptStyle = "plain", scorer: TextModel | None = None
    ) -> None:
        if prompt not in WORDINGS:
            raise ValueError(f"--prompt {prompt}: choose one of {', '.join(get_args(PromptStyle))}")
        self.model, self.prompt, self.scorer = model, prompt, scorer or model

    @classmethod
    def of(cls, path: str, args: argparse.Namespace) -> PromptedModel:
        """By `hf:` or `openai:` name and the flags of `protocol_flags.add_answer_arguments`."""
        from models.language.text_cache import CachedTextModel

        model = open_text_model(
            path, max_new_tokens=args.max_new_tokens, device=args.device, batch_size=args.batch_size
        )
        requests = Path(args.requests) if args.requests else None
        cached = CachedTextModel(model, requests, max_requests=args.max_requests)
        return cls(cached, prompt=args.prompt, scorer=model)

    def said(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Said]:
        """The answers in the order of the questions; no text at all is a failure too."""
        prompts = [question_prompt(example, self.prompt) for example in examples]
        answers = tqdm(
            self.model.complete(prompts), total=len(prompts), desc=what, unit="question", disable=None
        )
        for i, answer in enumerate(answers):
            if isinstance(answer, TextFailure):
                yield Said(i, "", answer.reason)
            else:
                text = short_answer(answer)
                yield Said(i, text, "" if text else "empty answer")

    def group_scores(self, groups: Sequence[Group], what: str = "scoring groups") -> Tensor:
        """S(x) of both subjects in the four variants: (N, 4, 2) float64, in the order of a group's subjects.

        S is the geometric mean of the probabilities of the subject's tokens given the prompt: as the span
        score sqrt(p_start p_end), it lies in [0, 1] and does not fall with the number of tokens. (LEI's
        appendix C names the encoding but no score.) The options stand in the order of the context, so that
        what a model prefers about a place cancels over the two orders.

        Raises:
            ValueError: the model is an endpoint, or a text does not fit it.
        """
        import torch

        if "likelihood" not in self.scorer.can:
            raise ValueError(f"{self.scorer.name} cannot score given texts; name a local model (hf:PATH)")
        parts = []
        bar = tqdm(range(0, len(groups), GROUPS_AT_ONCE), desc=what, unit="batch", disable=None)
        for start in bar:
            chunk = groups[start : start + GROUPS_AT_ONCE]
            pairs = [pair for group in chunk for variant in group.variants for pair in self._pairs(variant)]
            total_M = self.scorer.log_likelihoods(pairs)
            count_M = torch.tensor([token_count(self.scorer, *pair) for pair in pairs])
            parts.append((total_M / count_M).exp().view(len(chunk), 4, 2))
        return torch.cat(parts)

    def _pairs(self, asked: UnderspecifiedQuestion) -> list[tuple[str, str]]:
        """Prompt and continuation for each subject."""
        prompt = choice_prompt(asked, self.prompt)
        joined = "" if starts_anew(self.scorer) else " "
        lower = WORDINGS[self.prompt].lower
        texts = [span.text.lower() if lower else span.text for span in asked.candidates]
        return [(prompt, joined + text) for text in texts]


def question_prompt(example: QAExample, style: PromptStyle) -> str:
    """The prompt of a question, with its story and its last turns."""
    wording = WORDINGS[style]
    turns = example.history[max(0, len(example.history) - TURNS) :]
    earlier = "".join(_turn(turn, wording) for turn in turns)
    return _filled(wording.question, example, wording.lower, turns=earlier)


def choice_prompt(asked: UnderspecifiedQuestion, style: PromptStyle) -> str:
    """The prompt of a question between two subjects, which stand in it in the order of the context."""
    wording = WORDINGS[style]
    first, second = (span.text for span in sorted(asked.candidates, key=lambda span: span.start))
    return _filled(wording.choice, asked, wording.lower, first=first, second=second)


def _turn(turn: Turn, wording: Wording) -> str:
    return wording.turn.format(question=turn.question, answer=turn.answer)


def _filled(template: str, asked: QAExample | UnderspecifiedQuestion, lower: bool, **more: str) -> str:
    query = query_text(asked.question, asked.advice)
    parts = {"story": asked.context, "question": asked.question, "advice": asked.advice, "query": query}
    text = template.format(**parts, **more).strip()
    return text.lower() if lower else text


def starts_anew(model: Any) -> bool:
    """Whether a local model's reply is a text of its own, not the rest of the prompt."""
    return bool(model.is_seq2seq or model.chat)


def token_count(model: Any, prompt: str, continuation: str) -> int:
    """How many tokens of a local model the continuation has, behind the prompt where a model reads both."""

    def count(text: str, special: bool) -> int:
        return len(model.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    if starts_anew(model):
        return count(continuation, False)
    return max(1, count(prompt + continuation, True) - count(prompt, True))


def short_answer(text: str) -> str:
    """What a model means, without its wrapping: the first line, without "Answer:", quotes and full stop.

    A leading yes, no or unknown is the answer if punctuation or nothing follows it; so is UnifiedQA's way to
    say that there is none.

    >>> [short_answer(text) for text in ("Answer: The red bike.\\nQuestion: Who", "Yes, he did.", "No one.")]
    ['The red bike', 'yes', 'No one']
    """
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    line = unwrapped(next(iter(text.strip().splitlines()), ""))
    if found := _YES_NO.match(line):
        return found.group(1).lower()
    if _NO_ANSWER.fullmatch(line):
        return "unknown"
    return line if line.endswith("..") else unwrapped(line.removesuffix("."))


def unwrapped(text: str) -> str:
    """The text without the quotation marks or asterisks around the whole of it.

    >>> unwrapped('"**Tom**"'), unwrapped('the "Red Lion"')
    ('Tom', 'the "Red Lion"')
    """
    text = text.strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text


def prompt_record(checkpoints: Mapping[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """For `about`: how language models were asked; empty where there is none among the paths.

    Args:
        checkpoints: name to path, as on the command line.
        args: the flags of `add_answer_arguments`.
    """
    if not any(path.startswith(LANGUAGE_MODELS) for path in checkpoints.values()):
        return {}
    return {
        "prompt": {
            "style": args.prompt,
            **WORDINGS[args.prompt]._asdict(),
            "turns": TURNS,
            "max_new_tokens": args.max_new_tokens,
            "requests": args.requests,
            "max_requests": args.max_requests,
        }
    }
