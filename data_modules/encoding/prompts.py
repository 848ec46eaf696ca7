"""Text to tokens for decoders: a row is a prompt followed by the texts to score.

A text after a prompt is tokenised together with it, if the tokens of the prompt do not depend on the text;
else separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from jinja2 import TemplateError

from data_modules.encoding.windows import HISTORY_TURNS, UNKNOWN, EncodedRow, Encoding, Messages
from data_modules.schema.groups import Group
from data_modules.schema.questions import QAExample
from storage.errors import DataError

CHOOSE = "{prompt}\nThe choice that fits best:"
"""Prefix of each choice of a question; choices do not attend to each other."""

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""Options for chat templates: no chain of thought, and no current date in the prompt (Llama's templates write
one)."""


class Prompt(NamedTuple):
    """A decoder's prompt for a record, and the texts after it."""

    messages: Messages
    shown: str
    """The message that contains the context, up to the context's end."""
    context_length: int
    continuations: Sequence[str]
    name: str
    """Name of the record, for errors."""


def fill(
    messages: Messages, name: str, continuations: Sequence[str], *, advice: str, context: str, **slots: str
) -> Prompt:
    """Make the prompt of a record: messages with their slots filled in (see `Prompts`)."""
    filled, shown = [], ""
    for message in messages:
        template = message["content"]
        if not advice:
            template = re.sub(r" \{advice\}|\{advice\} ?", "", template)
        before, slot, _ = template.partition("{context}")
        if slot:
            shown = before.format(advice=advice, **slots) + context
        # The space before an answer is part of the answer's first token.
        content = template.format(advice=advice, context=context, **slots).rstrip(" ")
        if content.strip():
            filled.append({**message, "content": content})
    return Prompt(filled, shown, len(context), continuations, name)


def question_prompts(examples: Iterable[QAExample], encoding: Encoding, *, answers: bool) -> Iterator[Prompt]:
    """Yield the prompts of questions with their last turns; with `answers`, followed by the training target:
    the first answer of the context, yes, no, or unknown."""
    for example in examples:
        turns = example.history[-HISTORY_TURNS:]
        earlier = "".join(f"{turn.question}\nAnswer: {turn.answer}\nQuestion: " for turn in turns)
        in_text = example.answer_type not in ("yes", "no", UNKNOWN)
        answer = [example.answers[0].text if in_text else example.answer_type] if answers else []
        slots = {"context": example.context, "question": earlier + example.question}
        yield fill(encoding.prompts.prompt, example.id, answer, advice=example.advice, **slots)


def group_prompts(groups: Iterable[Group], encoding: Encoding) -> Iterator[Prompt]:
    """Yield the prompts of all variants, with the subjects listed in the order of the context; after each
    come the subjects in the group's order, and `unknown` if the prompt names it."""
    for group in groups:
        for variant in group.variants:
            subjects = [span.text for span in variant.candidates]
            offered = [span.text for span in sorted(variant.candidates, key=lambda span: span.start)]
            slots = {"context": variant.context, "question": variant.question, "advice": variant.advice}
            slots["options"] = " or ".join(offered)
            texts = [*subjects, UNKNOWN][: encoding.candidates]
            yield fill(encoding.prompts.choice_prompt, group.key, texts, **slots)


def written(tokenizer: Any, messages: Messages, **options: Any) -> str:
    """Format messages with the tokenizer's chat template."""
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **TEMPLATE_OPTIONS, **options))
    except TemplateError as error:  # such as Gemma's "System role not supported"
        said = f"the tokenizer's chat template fails: {error}; set encoding.prompts.chat=never"
        raise DataError(said) from error


@cache
def around_answer(tokenizer: Any, chat: Literal["auto", "never"]) -> tuple[str, list[int]]:
    """Return the white space before an answer, and the token that ends it, if any."""
    if chat == "never" or not tokenizer.chat_template:
        return " ", [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    user = {"role": "user", "content": "?"}
    asked = written(tokenizer, [user], add_generation_prompt=True)
    answered = written(tokenizer, [user, {"role": "assistant", "content": "Answer"}])
    lead, _, rest = answered.removeprefix(asked).rpartition("Answer")
    special = {*tokenizer.added_tokens_decoder, tokenizer.eos_token_id}
    ids = [*tokenizer(rest, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    ends = [i for i in ids if i is not None and i in special]
    return lead if lead.isspace() else "", ends[:1]


def encode_prompts(
    prompts: Iterable[Prompt], tokenizer: Any, encoding: Encoding, *, end: bool = False
) -> Iterator[EncodedRow]:
    """Yield the rows of prompts, in order; with `end`, each continuation ends in an end token.

    Raises:
        DataError: a row is too long, or a text has no tokens; the message names the record. Nothing is cut.
    """
    space, ending = around_answer(tokenizer, encoding.prompts.chat)
    ending = ending if end else []
    chat = encoding.prompts.chat == "auto" and bool(tokenizer.chat_template)
    # Chat templates include all special tokens.
    options = {"add_special_tokens": not chat, "return_offsets_mapping": True, "verbose": False}
    for example, prompt in enumerate(prompts):
        if chat:
            text = written(tokenizer, prompt.messages, add_generation_prompt=True)
        else:
            text = "\n\n".join(message["content"] for message in prompt.messages)
        at = text.rfind(prompt.shown.strip())  # templates may strip their input
        if at < 0:
            no_place = "the chat template changes the text; set encoding.prompts.chat=never"
            raise DataError(f"{prompt.name}: {no_place}")
        context_at = at + len(prompt.shown.lstrip()) - prompt.context_length
        encoded = tokenizer([text, *(f"{text}{space}{more}" for more in prompt.continuations)], **options)
        ids, *wholes = encoded["input_ids"]
        row, spans = [*ids], []
        for continuation, whole in zip(prompt.continuations, wholes, strict=True):
            behind = whole[len(ids) :]
            if whole[: len(ids)] != ids:
                behind = tokenizer(space + continuation, add_special_tokens=False)["input_ids"]
            if not behind:
                raise DataError(f"{prompt.name}: {continuation!r} has no tokens")
            spans.append((len(row), len(row) + len(behind) + len(ending) - 1))
            row += [*behind, *ending]
        if len(row) > encoding.max_length:
            raise DataError(f"{prompt.name}: has {len(row)} tokens, more than encoding.max_length")
        offsets_TE = np.full((len(row), 2), -1, dtype=np.int32)
        start_T, end_T = np.array(encoded["offset_mapping"][0], np.int32).T - context_at
        if text[:context_at][-1:].isspace():  # byte-level tokens begin with the space
            start_T[(start_T == -1) & (end_T > 0)] = 0
        inside = (start_T >= 0) & (start_T < end_T) & (end_T <= prompt.context_length)
        offsets_TE[: len(ids)][inside] = np.stack([start_T, end_T], axis=1)[inside]
        types_T = np.zeros(len(row), np.uint8)
        yield EncodedRow(np.array(row, np.int32), types_T, offsets_TE, len(ids) - 1, example, tuple(spans))
