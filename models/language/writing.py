"""Greedy writing: the one way in which every local language model generates text.

Shape letters: B rows, T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

import torch
from torch import Tensor

from .likelihood import Rows, padded
from .text_models import TextFailure, reply

Answer = TypeVar("Answer")


def end_tokens(model: Any) -> list[int]:
    """Return every token that ends a text, by the model's configuration and its generation
    settings.
    """
    ids = set[int]()
    for settings in (model.config, model.config.get_text_config(), model.generation_config):
        value: Any = getattr(settings, "eos_token_id", None)
        ids.update(value if isinstance(value, list) else [value])
    return sorted(ids - {None})


def context_limit(model: Any) -> int | None:
    """Return the number of positions of a model; None if they are relative."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def misfit(model: Any, length: int, new: int) -> TextFailure | None:
    """Why a prompt of `length` tokens and a text of `new` cannot be read; None if they can."""
    if not length:
        return TextFailure("empty prompt")
    limit = context_limit(model)
    needed = max(length, new) if model.config.is_encoder_decoder else length + new
    if limit is None or needed <= limit:
        return None
    detail = f"{length} tokens and {new} new ones, where the model takes {limit}"
    return TextFailure("longer than the model's context", detail)


def answers_that_fit(
    model: Any,
    rows: Rows,
    answer: Callable[[Rows], Iterable[Answer]],
    *,
    new: int,
) -> Iterator[Answer | TextFailure]:
    """Yield what `answer` makes of the prompts' token ids, in order; a failure for a prompt that
    leaves no room for `new` tokens.
    """
    failures = [misfit(model, len(row), new) for row in rows]
    fitting = [row for row, failure in zip(rows, failures, strict=True) if failure is None]
    answers = iter(answer(fitting))
    for failure in failures:
        yield failure or next(answers)


def require_finite(model: Any, logits_BV: Tensor) -> Tensor:
    """Return the logits; ValueError where they overflow: a model would repeat one token
    for ever.
    """
    if not logits_BV.amax(-1).isfinite().all():
        name = model.name_or_path or type(model).__name__
        raise ValueError(
            f"{name}: gives logits that are not finite numbers in {model.dtype}; choose another "
            "model, or --dtype float32"
        )
    return logits_BV


@torch.no_grad()
def generate(
    model: Any,
    rows: Rows,
    *,
    ends: list[int],
    processors: Sequence[Callable[[Tensor, Tensor], Tensor]] = (),
    **settings: int,
) -> list[list[int]]:
    """Return the new token ids after each row of a prompt's ids, padded to one length.

    A folder's generation_config.json changes nothing: sampling, penalties, suppressed tokens and
    minimum lengths would make a model's answers differ between its files. Only the fixed first
    tokens of sequence-to-sequence models are taken from it.

    Args:
        model: a causal or sequence-to-sequence model of transformers.
        ends: tokens that end a text.
        processors: change the logits of a step, as in transformers.
        settings: of GenerationConfig: `max_new_tokens`, `min_new_tokens`, `num_beams`.

    Raises:
        ValueError: logits are not finite.
    """
    from transformers import GenerationConfig

    original, seq2seq = model.generation_config, model.config.is_encoder_decoder
    config = GenerationConfig(
        do_sample=False,
        eos_token_id=ends or None,
        pad_token_id=0,
        decoder_start_token_id=original.decoder_start_token_id,
        forced_bos_token_id=original.forced_bos_token_id,
        **settings,
    )
    # Causal models are padded on the left, so that every prompt ends where its text begins.
    inputs = padded(rows, model.device, left=not seq2seq)
    try:
        model.generation_config = config  # transformers fills the gaps of its argument from here
        # FSDP would wait for other processes, which may have fewer batches; all weights are
        # gathered here.
        new_BT = model.generate(
            **inputs,
            generation_config=config,
            logits_processor=[lambda _, logits_BV: require_finite(model, logits_BV), *processors],
            synced_gpus=False,
        )
    finally:
        model.generation_config = original
    # After the one token with which a separate decoder starts, or after the prompt.
    start = 1 if seq2seq else inputs["input_ids"].shape[1]
    return new_BT[:, start:].tolist()


def write(
    model: Any, tokens: Any, rows: Rows, *, most: int, batch_size: int
) -> Iterator[str | TextFailure]:
    """Yield a model's text after each prompt, in order; a failure for a prompt that does not fit.

    Args:
        model: see `generate`.
        tokens: its tokenizer, as `interventune.data_modules.encoding.prompts.PromptTokens`.
        rows: token ids of the prompts.
        most: limit on the number of new tokens.
        batch_size: rows read together.
    """
    ends = sorted({*end_tokens(model), *tokens.ends})

    def texts(fitting: Rows) -> Iterator[str | TextFailure]:
        for start in range(0, len(fitting), batch_size):
            batch = fitting[start : start + batch_size]
            new = generate(model, batch, ends=ends, max_new_tokens=most)
            answers = ([*takewhile(lambda i: i not in ends, row)] for row in new)
            yield from map(reply, tokens.decoded(answers))

    return answers_that_fit(model, rows, texts, new=most)
