"""Text to tokens for language models: a prompt, and the texts after it; and short answers from what
they write.

A text after a prompt is tokenised together with it, if the tokens of the prompt do not depend on
the text; else separately.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from interventune.data_modules.schema.groups import Group, UnderspecifiedQuestion
from interventune.data_modules.schema.questions import QAExample, TextPair
from interventune.storage.documents import DataError, Values

from .tokenizers import tokenizer_id, warn_of_unknown
from .windows import HISTORY_TURNS, UNKNOWN, EncodedRow, Encoding, Messages, Prompts

CHOOSE = "{prompt}\nThe choice that fits best:"
"""Prefix of each choice of a question; choices do not attend to each other."""

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""Options for chat templates: no chain of thought, and no current date in the prompt (Llama's
templates write one).
"""

_PREFIX = re.compile(r"\s*(?:(?:(?:the|final|short)\s+)*answer(?:\s+is)?|A)\s*:", re.I)
_QUOTES = dict(zip("\"'`*“‘«", "\"'`*”’»", strict=True))
"""Marks around an answer, and those that end it."""
_YES_NO = re.compile(
    r"[\"'`*“‘]*(yes|no)(?!\.\s*\d)[\"'`*”’]*"
    r"(?:[.,;:!?…]+[\"'`*”’]*(?:\s|$)|\s*[–—]|\s+-\s|\s*\(|$)",
    re.I,
)

Texts = Sequence[str]
Ids = list[list[int]]
"""The token ids of several texts."""


class Prompt(NamedTuple):
    """A language model's prompt for a record, and the texts after it."""

    messages: Messages
    shown: str
    """The message that contains the context, up to the context's end."""
    context_length: int
    continuations: Texts
    name: str
    """Name of the record, for errors."""


def fill(
    messages: Messages,
    name: str,
    continuations: Texts,
    record: QAExample | UnderspecifiedQuestion,
    **slots: str,
) -> Prompt:
    """Make the prompt of a record: messages with their slots filled in (see `Prompts`)."""
    filled = []
    shown = ""
    slots |= {"advice": record.advice, "question": record.question}
    for message in messages:
        template = re.sub(r"^(?=.*\{question\})", "{turns}", message["content"], flags=re.M)
        if not record.advice:
            template = re.sub(r" \{advice\}|\{advice\} ?", "", template)
        before, slot, _ = template.partition("{context}")
        if slot:
            shown = before.format(**slots) + record.context
        # The space before an answer is part of the answer's first token.
        content = template.format(context=record.context, **slots).rstrip(" ")
        if content.strip():
            filled.append({**message, "content": content})
    return Prompt(filled, shown, len(record.context), continuations, name)


def question_prompts(
    examples: Iterable[QAExample], prompts: Prompts, *, answers: bool
) -> Iterator[Prompt]:
    """Yield the prompts of questions with their last turns.

    With `answers`, the training target follows: the first answer of the context, yes, no, or
    unknown.
    """
    for example in examples:
        turns = "".join(
            prompts.turn.format(question=turn.question, answer=turn.answer)
            for turn in example.history[-HISTORY_TURNS:]
        )
        target: str = example.answer_type
        if target not in ("yes", "no", UNKNOWN):
            target = example.answers[0].text if example.answers else example.gold[0]
        yield fill(prompts.prompt, example.id, [target] if answers else [], example, turns=turns)


def group_prompts(groups: Iterable[Group], prompts: Prompts) -> Iterator[Prompt]:
    """Yield the prompts of all variants, with the subjects in the order of the context.

    After each come the subjects in the group's order, and `unknown` if the prompt names it.
    """
    for group in groups:
        for variant in group.variants:
            answers = [*(span.text for span in variant.candidates), UNKNOWN][: prompts.candidates]
            in_context = sorted(variant.candidates, key=lambda span: span.start)
            options = prompts.options.format(*(span.text for span in in_context))
            yield fill(
                prompts.choice_prompt, group.key, answers, variant, options=options, turns=""
            )


class PromptTokens:
    """A tokenizer as a language model uses it: the tokens of prompts, and of texts after them.

    Args:
        tokenizer: of transformers, a fast one.
        chat: whether prompts use its chat template: `auto`, if there is one, or `never`.
        seq2seq: whether the model reads the prompt apart from its answer, as T5 and BART do.
    """

    def __init__(
        self, tokenizer: Any, chat: Literal["auto", "never"] = "auto", *, seq2seq: bool = False
    ) -> None:
        self.tokenizer = tokenizer
        self.seq2seq = seq2seq
        self.chat = chat == "auto" and bool(tokenizer.chat_template)
        row = tokenizer("a", return_special_tokens_mask=True)
        ids = row["input_ids"]
        special = row["special_tokens_mask"]
        self.lead = [] if self.chat else ids[: special.index(0)]
        """The tokens with which the tokenizer begins every text (Llama, Gemma), or none (GPT-2, and
        a chat template, which writes them itself).
        """
        self.tail = ids[len(ids) - special[::-1].index(0) :]
        """Those with which it ends every text: a sequence-to-sequence model reads and writes them.
        A causal model's prompt ends without: after an end token it would begin another text.
        """
        self.space = "" if seq2seq else " "
        """The white space before an answer."""
        self.ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        """The tokens that end an answer; training appends the first."""
        self.example = self.text("?")
        """A prompt as the template writes it, with the date if it insists on one."""
        self.opening = "".join(re.findall(r"<\w*think\w*>\s*$", self.example))
        """The mark of a chain of thought that the template opens."""
        named = tokenizer.added_tokens_decoder
        if self.chat:
            user = {"role": "user", "content": "?"}
            answered = self._template([user, {"role": "assistant", "content": "Answer"}])
            lead, _, rest = answered.removeprefix(self.example).rpartition("Answer")
            self.space = lead if lead.isspace() else ""
            self.ends = [i for i in (*self.ids([rest])[0], *self.ends) if i in {*named, *self.ends}]
        added = (i for i, token in named.items() if token.special)
        special_ids = {*tokenizer.all_special_ids, *added}
        self.hidden = {i for i in special_ids if "think" not in str(named.get(i)).lower()}
        """Special tokens that are no part of an answer; those around a chain of thought
        are needed.
        """

    @property
    def identity(self) -> Values:
        """Everything that tokens depend on, as plain JSON."""
        return {
            "tokenizer": tokenizer_id(self.tokenizer),
            "chat": self.chat,
            "prompt": self.example,
        }

    def encoded(self, texts: Texts) -> list[Any]:
        """Return encodings of the tokenizers library, with offsets and without special tokens."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()  # settings of the tokenizer's last call
        backend.no_padding()
        return backend.encode_batch(list(texts), add_special_tokens=False)

    def ids(self, texts: Texts) -> Ids:
        """Return the token ids of texts, without special tokens."""
        return [row.ids for row in self.encoded(texts)]

    def text(self, prompt: str | Messages) -> str:
        """Return a prompt as one text: by the chat template, else its messages joined."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if self.chat:
            return self._template(messages, add_generation_prompt=True)
        return "\n\n".join(message["content"] for message in messages)

    def _template(self, messages: Messages, **options: Any) -> str:
        options |= TEMPLATE_OPTIONS
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, **options)
        except Exception as error:  # TemplateError ("System role not supported"), but also 1 / 0
            raise DataError(
                f"the tokenizer's chat template fails: {error}; set encoding.prompts.chat=never"
            ) from error

    def prompts(self, texts: Texts) -> Ids:
        """Return the token ids of prompts, from `text`; a chat template writes special tokens."""
        tail = self.tail if self.seq2seq and not self.chat else []
        every = self.ids(texts)
        warn_of_unknown(self.tokenizer, every[:999])
        return [[*self.lead, *ids, *tail] for ids in every]

    def after(self, prompts: Texts, texts: Texts) -> Ids:
        """Return the token ids of each text after its prompt; leading white space counts."""
        apart = self.ids(texts)
        if self.seq2seq:
            return [[*ids, *self.tail] if ids else [] for ids in apart]
        wholes = self.ids([prompt + text for prompt, text in zip(prompts, texts, strict=True)])
        return [
            whole[len(first) :] if whole[: len(first)] == first else alone
            for first, whole, alone in zip(self.ids(prompts), wholes, apart, strict=True)
        ]

    def decoded(self, rows: Iterable[Sequence[int]]) -> list[str]:
        """Return what new tokens say, with the marks around a chain of thought."""
        shown = ([i for i in row if i not in self.hidden] for row in rows)
        return [self.opening + self.tokenizer.decode(ids) for ids in shown]


def encode_prompts(
    prompts: Iterable[Prompt], tokenizer: Any, encoding: Encoding, *, end: bool = False
) -> Iterator[EncodedRow]:
    """Yield the rows of prompts, in order; with `end`, each continuation ends in an end token.

    Raises:
        DataError: a row is too long, or a text has no tokens; the message names the record. Nothing
            is cut.
    """
    tokens = PromptTokens(tokenizer, encoding.prompts.chat)
    ending = tokens.ends[:1] if end else []
    for example, prompt in enumerate(prompts):
        text = tokens.text(prompt.messages)
        at = text.rfind(prompt.shown.strip())  # templates may strip their input
        if at < 0:
            raise DataError(
                f"{prompt.name}: the chat template changes the text; set "
                "encoding.prompts.chat=never"
            )
        context_at = at + len(prompt.shown.lstrip()) - prompt.context_length
        (encoded,) = tokens.encoded([text])
        row = [*tokens.lead, *encoded.ids]
        spans = []
        last = len(row) - 1
        texts = [tokens.space + more for more in prompt.continuations]
        for more, ids in zip(
            prompt.continuations, tokens.after([text] * len(texts), texts), strict=True
        ):
            if not ids:
                raise DataError(f"{prompt.name}: {more!r} has no tokens")
            start = len(row)
            row += [*ids, *ending]
            spans.append((start, len(row) - 1))
        if len(row) > encoding.max_length:
            raise DataError(f"{prompt.name}: has {len(row)} tokens, more than encoding.max_length")
        prompt_TE = np.array(encoded.offsets, np.int32).reshape(-1, 2) - context_at
        start_T, end_T = prompt_TE.T
        if text[context_at - 1 : context_at].isspace():  # byte-level tokens begin with the space
            start_T[(start_T == -1) & (end_T > 0)] = 0
        inside_T = (start_T >= 0) & (start_T < end_T) & (end_T <= prompt.context_length)
        prompt_TE[~inside_T] = -1
        offsets_TE = np.full((len(row), 2), -1, np.int32)
        offsets_TE[len(tokens.lead) : last + 1] = prompt_TE
        types_T = np.zeros(len(row), np.uint8)
        yield EncodedRow(np.array(row, np.int32), types_T, offsets_TE, last, example, tuple(spans))


def answer_in(text: str, failure: str = "") -> TextPair:
    """Return the short answer in a model's text, and the reason why there is none.

    The reason is `failure`, or that the text has no answer.

    >>> answer_in("The bike.\\nQuestion:"), answer_in("Answer:"), answer_in("", "too long")
    (('The bike', ''), ('', 'empty answer'), ('', 'too long'))
    """
    answer = "" if failure else short_answer(text)
    return answer, failure or ("" if answer else "empty answer")


def short_answer(text: str) -> str:
    """Extract the first line of a model's text, without "Answer:" or "A:", quotes and full stop.

    A leading yes or no is the answer if punctuation or nothing follows it. What says unknown is
    left as written: metrics/unknown.py decides.

    >>> [short_answer(text) for text in ("Answer: The bike.\\nQuestion:", "Yes, he did.")]
    ['The bike', 'yes']
    """
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    line = _unwrapped(next(iter(text.strip().splitlines()), ""))
    if match := _YES_NO.match(line):
        return match[1].lower()
    return line if line.endswith("..") else _unwrapped(line.removesuffix("."))


def _unwrapped(text: str) -> str:
    """The text without the quotation marks or asterisks around the whole of it."""
    text = text.strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text
