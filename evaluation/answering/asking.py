"""Flags of protocols: which models to evaluate, and how.

--checkpoint ot=runs/.../best.ckpt base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from interventune.storage.command_line import Count, split_name

LANGUAGE_MODELS = ("hf:", "openai:")
"""Prefixes of language models' names; any other name is a checkpoint, or a file of answers."""

PromptStyle = Literal["auto", "paper", "offers-unknown", "unifiedqa"]
"""Prompt styles for language models (`interventune.evaluation.answering.prompts`)."""


@dataclass(frozen=True)
class Compute:
    """How models run.

    Args:
        device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
        dtype: precision of a language model's weights, and of an encoder's computation. auto is
            float32, except for a language model on a GPU, which keeps the precision of its files.
        batch_size: rows per batch (`bias` adds more when they are short), or simultaneous requests
            to an endpoint.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_size: Count = 64


@dataclass(frozen=True)
class Asking(Compute):
    """How models are queried.

    Args:
        max_new_tokens: maximum length of an answer that a language model writes.
        prompt: prompt for language models. auto: as the model was trained here, else as it would
            be; paper: the story, earlier turns and the question after Q: and A:; offers-unknown: an
            instruction that allows the answer unknown; unifiedqa: UnifiedQA's format.
        chat: chat template of local language models. auto: as the model was trained here, else if
            the tokenizer has one; never: leave it out.
    """

    max_new_tokens: Count = 32
    prompt: PromptStyle = "auto"
    chat: Literal["auto", "never"] = "auto"


def named_sources(arguments: Sequence[str], flag: str) -> dict[str, str]:
    """Map `NAME=SOURCE` or `SOURCE` (named after its path) to sources by name. ValueError: repeated
    name.
    """
    named: dict[str, str] = {}
    for argument in arguments:
        name, path = split_name(argument)
        name = name or source_name(path)
        if name in named:
            raise ValueError(f"{flag}: two are called {name!r}; write NAME=PATH to tell them apart")
        named[name] = path
    return named


def source_name(path: str) -> str:
    """Return the default name of a source: a file's stem, the last part of a Hub name.

    >>> [source_name(path) for path in ("runs/a.ckpt", "org/bert-v1.5", "openai:m1.5@http://h/v1")]
    ['a', 'bert-v1.5', 'm1.5']
    """
    if path.startswith(LANGUAGE_MODELS):
        path = path.partition(":")[2].partition("@http")[0]
    last = Path(path.rstrip("/").rpartition("/")[2])
    known = last.suffix in (".ckpt", ".json", ".jsonl", ".parquet", ".csv", ".gz")
    return last.stem if known or os.path.isfile(path) else last.name
