"""Tiny language models, and what they say by passes without padding, cache or `generate`."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from interventune.evaluation.answering.interface import Asking
from interventune.evaluation.answering.language_model import open_text_model
from tests.data_modules.fixtures.tiny_language_models import save

CHAT = "<s> {% for m in messages %}who : {{ m['content'] }}{% endfor %} is"


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Causal and sequence-to-sequence models by name; all of gpt2 have the same weights."""
    root = tmp_path_factory.mktemp("models")
    built = {kind: save(root / kind, kind) for kind in ("gpt2", "mamba", "t5", "bart")}
    built["gpt2_chat"] = save(root / "gpt2_chat", "gpt2", chat=CHAT)
    built["gpt2_begins"] = save(root / "gpt2_begins", "gpt2", bos=True)
    return built


def load_text_model(folder: Path | str, **how: Any) -> Any:
    options = {"device": "cpu", "batch_size": 8, "max_new_tokens": 64, "chat": "auto"}
    return open_text_model(f"hf:{folder}", Asking(**(options | how)))


@cache
def loaded(folder: Path) -> tuple[Any, Any]:
    kind = AutoModelForSeq2SeqLM if folder.name in ("t5", "bart") else AutoModelForCausalLM
    return kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def lead(folder: Path) -> list[int]:
    """What every answer begins with: BART's kin force a token."""
    forced = loaded(folder)[0].generation_config.forced_bos_token_id
    return [] if forced is None else [forced]


def next_log_probs(folder: Path, prompt: str, written: Sequence[int] = ()) -> Tensor:
    """Log-probabilities (V,) of the token after a prompt and what was written since; float64."""
    model, tokenizer = loaded(folder)
    ids = tokenizer(prompt)["input_ids"]
    if model.config.is_encoder_decoder:
        decoder = torch.tensor([[model.config.decoder_start_token_id, *written]])
        inputs = {"input_ids": torch.tensor([ids]), "decoder_input_ids": decoder}
    else:
        inputs = {"input_ids": torch.tensor([[*ids, *written]])}
    with torch.no_grad():
        log_V: Tensor = model(**inputs, use_cache=False).logits[0, -1].double().log_softmax(-1)
    return log_V


@cache
def greedy(folder: Path, prompt: str, new: int) -> str:
    """At most `new` tokens, the likeliest one each time."""
    model, tokenizer = loaded(folder)
    written = lead(folder)
    while len(written) < new and written[-1:] != [model.generation_config.eos_token_id]:
        written.append(int(next_log_probs(folder, prompt, written).argmax()))
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


@cache
def log_likelihood(folder: Path, prompt: str, continuation: str) -> float:
    """One softmax a token, the end token of a sequence-to-sequence model among them."""
    total, written = 0.0, lead(folder)
    model, tokenizer = loaded(folder)
    end = [1] if model.config.is_encoder_decoder else []
    for token in tokenizer(continuation, add_special_tokens=False)["input_ids"] + end:
        total += float(next_log_probs(folder, prompt, written)[token])
        written.append(token)
    return total
