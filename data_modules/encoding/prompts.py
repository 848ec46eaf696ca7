"""Text to tokens for decoders: a row is a prompt, with the texts to be scored behind it.

The prompt of a question holds context and question, that of a group also offers its two subjects, in the
order of the context. It is a plain text, or the user's message in the tokenizer's chat template, behind which
the assistant begins to speak. What stands behind a prompt has the tokens of prompt and text read as one,
wherever the tokens of the prompt do not depend on what follows; else its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jinja2 import TemplateError

from data_modules.schema import AdviceAt, Asked, QAExample, Span, UnderspecifiedQuestion, query_text
from storage.errors import DataError

CHOOSE = "{prompt}\nThe choice that fits best:"
"""Before each choice of a question, which do not see each other."""

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""What chat templates are told: answers come without a train of thought, and no prompt changes with the day
(Llama's templates write a date)."""

_CHUNK = 512
"""Texts per tokenizer call."""


class Prompt(NamedTuple):
    """What a decoder reads."""

    text: str
    """The user's message."""
    context_at: int
    """Where the context begins in it."""
    context_length: int
    continuations: tuple[str, ...]
    """Texts behind the prompt."""
    name: str
    """Of the record, for errors."""
    system: str = ""
    """What stands before everything."""


def prompt(
    template: str, asked: Asked, advice_at: AdviceAt, continuations: Sequence[str] = (), **options: str
) -> Prompt:
    """A template filled in; `options` are what it may name besides {context} and {question}."""
    context, query, name, advice = asked
    whole = f"{context} {advice}" if advice and advice_at == "context" else context
    before = template.partition("{context}")[0].format(question=query, **options)
    # The space before an answer is a part of the answer's first token.
    text = template.format(context=whole, question=query, **options).rstrip(" ")
    system = advice if advice_at == "system" else ""
    return Prompt(text, len(before), len(context), tuple(continuations), name, system)


def group_prompt(
    question: UnderspecifiedQuestion, name: str, template: str, advice_at: AdviceAt, unknown: str = ""
) -> Prompt:
    """The prompt of one variant of a group, see `choice_prompt`."""
    at_question = advice_at == "user"
    query = query_text(question.question, question.advice if at_question else "")
    asked = Asked(question.context, query, name, "" if at_question else question.advice)
    return choice_prompt(asked, question.candidates, template, advice_at, unknown)


def choice_prompt(
    asked: Asked, candidates: Sequence[Span], template: str, advice_at: AdviceAt, unknown: str = ""
) -> Prompt:
    """The prompt that offers two candidates or more in the order of the context, with these behind it in
    their own, and `unknown` where it is an answer too."""
    last = [unknown] * bool(unknown)
    offered = [span.text for span in sorted(candidates, key=lambda span: span.start)] + last
    named = {"first": offered[0], "second": offered[1]}
    named["options"] = f"{', '.join(offered[:-1])} or {offered[-1]}"
    return prompt(template, asked, advice_at, [span.text for span in candidates] + last, **named)


class ChatTemplate:
    """A tokenizer's chat template, for one question at a time.

    Args:
        tokenizer: one that has a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.has_system = self._has_system()
        """Whether it has a place for a system message."""
        asked = self._written([{"role": "user", "content": "?"}], add_generation_prompt=True)
        answered = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Answer"}]
        lead, _, rest = self._written(answered).removeprefix(asked).rpartition("Answer")
        self.lead = lead if lead.isspace() else ""
        """White space between the prompt and the assistant's answer."""
        special = tokenizer.added_tokens_decoder
        ends = [i for i in tokenizer(rest, add_special_tokens=False)["input_ids"] if i in special]
        self.end: int | None = ends[0] if ends else tokenizer.eos_token_id
        """The token that ends the assistant's answer."""

    def text(self, item: Prompt) -> tuple[str, int]:
        """The prompt up to where the assistant answers, and where the user's message begins in it.

        Raises:
            DataError: the template fails, or writes the message differently; names the record.
        """
        user, before = item.text, 0
        if item.system and not self.has_system:
            before = len(item.system) + 2
            user = f"{item.system}\n\n{user}"
        system = [{"role": "system", "content": item.system}] * bool(item.system and self.has_system)
        try:
            text = self._written([*system, {"role": "user", "content": user}], add_generation_prompt=True)
        except TemplateError as error:
            raise DataError(f"{item.name}: the chat template fails: {error}") from error
        at = text.rfind(user.strip())  # templates may strip what they are given
        if at < 0:
            raise DataError(
                f"{item.name}: the chat template changes the text of the message; set encoding.chat=never"
            )
        return text, at - (len(user) - len(user.lstrip())) + before

    def _written(self, turns: list[dict[str, str]], **options: Any) -> str:
        text: str = self.tokenizer.apply_chat_template(turns, tokenize=False, **TEMPLATE_OPTIONS, **options)
        return text

    def _has_system(self) -> bool:
        turns = [{"role": "system", "content": "a system message"}, {"role": "user", "content": "?"}]
        try:
            return "a system message" in self._written(turns)
        except TemplateError:  # as Gemma's: "System role not supported"
            return False


@cache
def chat_template(tokenizer: Any) -> ChatTemplate:
    """The chat template of a tokenizer.

    Raises:
        DataError: it cannot be filled in.
    """
    try:
        return ChatTemplate(tokenizer)
    except TemplateError as error:
        raise DataError(f"the tokenizer's chat template fails: {error}; set encoding.chat=never") from error


def plain_text(item: Prompt) -> tuple[str, int]:
    """The prompt without a chat template, and where the user's message begins in it."""
    before = f"{item.system}\n\n" if item.system else ""
    return before + item.text, len(before)


def answer_end(tokenizer: Any, chat: bool) -> list[int]:
    """The token that ends an answer; none where the tokenizer has none."""
    end = chat_template(tokenizer).end if chat else tokenizer.eos_token_id
    return [] if end is None else [end]


def target_text(example: QAExample, unknown: str) -> str:
    """What a decoder is trained to write: the first answer of the context, yes, no, or `unknown`."""
    if example.answer_type == "unknown":
        return unknown
    return example.answer_type if example.answer_type in ("yes", "no") else example.answers[0].text


class PromptRow(NamedTuple):
    """One prompt in tokens, with its continuations behind it."""

    input_ids_T: np.ndarray
    offsets_TE: np.ndarray
    """Character offsets into the context, end-exclusive; (-1, -1) outside the context."""
    last: int
    """The prompt's last token."""
    spans: list[tuple[int, int]]
    """First and last token of each continuation."""


def encode_prompts(
    prompts: Iterable[Prompt], tokenizer: Any, max_length: int, *, chat: bool = False, end: bool = False
) -> Iterator[PromptRow]:
    """The rows of prompts, in order.

    Args:
        prompts: with their continuations.
        tokenizer: a fast tokenizer of transformers.
        max_length: most tokens of a row.
        chat: whether the tokenizer's chat template is used, which writes all special tokens itself.
        end: whether an end token belongs to each continuation.

    Raises:
        DataError: a row is longer, or a text has no tokens; names the record. Nothing is cut.
    """
    template = chat_template(tokenizer) if chat else None
    space, ending = template.lead if template else " ", answer_end(tokenizer, chat) if end else []
    tokens = partial(tokenizer, add_special_tokens=not chat, verbose=False)
    remaining = iter(prompts)
    while chunk := list(islice(remaining, _CHUNK)):
        texts = [template.text(p) if template else plain_text(p) for p in chunk]
        encoded = tokens([text for text, _ in texts], return_offsets_mapping=True)
        followed = [
            f"{text}{space}{behind}"
            for (text, _), p in zip(texts, chunk, strict=True)
            for behind in p.continuations
        ]
        alone = [f"{space}{text}" for p in chunk for text in p.continuations]
        wholes = iter(tokens(followed)["input_ids"] if followed else ())
        apart = iter(tokenizer(alone, add_special_tokens=False)["input_ids"] if alone else ())
        rows = zip(chunk, texts, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        for item, (_, user_at), ids, offsets in rows:
            row, spans = list(ids), []
            for text in item.continuations:
                whole, second = next(wholes), next(apart)
                second = whole[len(ids) :] if whole[: len(ids)] == ids else second
                if not second:
                    raise DataError(f"{item.name}: {text!r} has no tokens")
                spans.append((len(row), len(row) + len(second) + len(ending) - 1))
                row += [*second, *ending]
            if len(row) > max_length:
                raise DataError(
                    f"{item.name}: prompt and answers take {len(row)} tokens, {max_length} are allowed; "
                    "raise encoding.max_length"
                )
            offsets_TE = np.full((len(row), 2), -1, dtype=np.int32)
            offset_NE = np.array(offsets, dtype=np.int32).reshape(-1, 2) - user_at - item.context_at
            if item.text[: item.context_at][-1:].isspace():  # byte-level tokens begin with it
                offset_NE[(offset_NE[:, 0] == -1) & (offset_NE[:, 1] > 0), 0] = 0
            offsets_TE[: len(ids)] = offset_NE
            outside = (offsets_TE[:, 0] < 0) | (offsets_TE[:, 1] > item.context_length)
            outside |= offsets_TE[:, 0] >= offsets_TE[:, 1]
            outside[len(ids) :] = True
            offsets_TE[outside] = -1
            yield PromptRow(np.array(row, dtype=np.int32), offsets_TE, len(ids) - 1, spans)
