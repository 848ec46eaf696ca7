"""A causal or sequence-to-sequence model of transformers, on this machine, as a text model.

Tensor suffixes: N pairs, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from models.backbones import pick_device, refuse_nonfinite
from models.language.likelihood import float32_logits, log_likelihoods
from models.language.next_token import first_tokens, log_probabilities
from models.language.self_debiasing import DECAY, FLOOR, continued, padded
from models.language.text_models import Ability, Settings, TextFailure, TextModel

logger = logging.getLogger(__name__)

_SORTED_BATCHES = 4
"""Prompts are sorted by length within so many batches: little padding, and answers still come as they go."""


class LocalTextModel(TextModel):
    """A causal or sequence-to-sequence model of transformers, from a folder or the Hub (safetensors only).

    `dtype` is of the weights: auto is float32 on a CPU, where answers then do not depend on the batch, and on
    a GPU what the model was saved in. Logits are float32 always.
    Generation settings of the model (such as a repetition penalty) hold, except that decoding is greedy.

    Raises:
        ValueError: the model or its tokenizer cannot be loaded, or there is no such device.
    """

    can: frozenset[Ability] = frozenset({"write", "next_token", "likelihood"})

    def __init__(
        self,
        path: str,
        *,
        max_new_tokens: int = 64,
        device: str = "auto",
        dtype: str = "auto",
        batch_size: int = 8,
        chat_template: bool = True,
    ) -> None:
        self.name = f"hf:{path}"
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self.device = pick_device(device)
        self.model, self.tokenizer = _load(path, self.device, dtype)
        self.model.register_forward_hook(self._require_finite)
        self.config = self.model.config
        self.is_seq2seq = bool(self.config.is_encoder_decoder)
        if not self.is_seq2seq:
            self.can = self.can | {"steer"}
        self.chat = chat_template and bool(self.tokenizer.chat_template)
        self.limit: int | None = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        self.settings: Settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": 0,
            "chat_template": self.chat,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "weights": weights_id(path, self.config),
        }
        # It would store the settings of its last call too; transformers sets them anew in every call.
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        self.settings["tokenizer"] = hashlib.sha256(backend.to_str().encode()).hexdigest()[:16]
        if self.chat:
            template = json.dumps(self.tokenizer.chat_template, sort_keys=True)
            self.settings["template"] = hashlib.sha256(template.encode()).hexdigest()[:16]
        row = self.tokenizer("a", return_special_tokens_mask=True)
        special = sum(1 for _ in takewhile(bool, row["special_tokens_mask"]))
        self.lead: list[int] = row["input_ids"][:special]
        """What the tokenizer begins every text with: one token (Llama, Gemma), or none (GPT-2)."""
        self.pad = next(
            i for i in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0) if i is not None
        )
        chosen = self.model.generation_config
        chosen.do_sample, chosen.num_beams, chosen.max_length = False, 1, None
        chosen.temperature = chosen.top_p = chosen.top_k = None
        chosen.pad_token_id = self.pad

    def _require_finite(self, _: Any, __: Any, output: Any) -> None:
        """Raise ValueError where a row's last logits overflow: a model would write on, one token for ever."""
        if not output.logits[:, -1].amax().isfinite():
            raise ValueError(
                f"{self.name}: gives logits that are not finite numbers in {self.model.dtype}; choose another"
                " model"
            )

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """The new text alone, without special tokens. Prompts that leave no room in the model's context fail;
        how many is logged before anything is generated."""
        ids = [self._prompt_ids(prompt) for prompt in prompts]
        failures = {
            i: failure
            for i, row in enumerate(ids)
            if (failure := self._misfit(len(row), self.max_new_tokens))
        }
        if failures:
            logger.warning(
                "%d of %d prompts do not fit: %s", len(failures), len(ids), next(iter(failures.values()))
            )
        for first in range(0, len(ids), window := _SORTED_BATCHES * self.batch_size):
            at = [i for i in range(first, min(first + window, len(ids))) if i not in failures]
            at.sort(key=lambda i: -len(ids[i]))
            texts: dict[int, str | TextFailure] = {}
            for start in range(0, len(at), self.batch_size):
                batch = at[start : start + self.batch_size]
                # A causal model gets padding on the left: every prompt ends where its answer begins.
                inputs = self.padded([ids[i] for i in batch], left=not self.is_seq2seq)
                with torch.inference_mode():
                    out_BT = self.model.generate(**inputs, max_new_tokens=self.max_new_tokens)
                new_BT = out_BT if self.is_seq2seq else out_BT[:, inputs["input_ids"].shape[1] :]
                for i, text in zip(
                    batch, self.tokenizer.batch_decode(new_BT, skip_special_tokens=True), strict=True
                ):
                    texts[i] = text.strip() or TextFailure("empty answer")
            for i in range(first, min(first + window, len(ids))):
                yield failures.get(i) or texts[i]

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Sums of the log-probabilities of the continuation's tokens; an end token is not counted.

        A causal model reads prompt and continuation as one text, so a continuation brings its own leading
        space. A sequence-to-sequence model reads the prompt and writes the continuation.

        Returns:
            (N,) float64 on the CPU, in nats.

        Raises:
            ValueError: a continuation has no tokens, or a pair does not fit the model's context.
        """
        rows: list[tuple[list[int], list[int]]] = []
        for i, (prompt, continuation) in enumerate(pairs):
            first = self._prompt_ids(prompt)
            (second,) = self.plain_ids([continuation])
            if not self.is_seq2seq and not self.chat:
                # Of one text wherever the prompt's tokens do not depend on what follows.
                whole = self._prompt_ids(prompt + continuation)
                second = whole[len(first) :] if whole[: len(first)] == first else second
            if not second:
                raise ValueError(f"pair {i}: the continuation {continuation!r} has no tokens")
            if failure := self._misfit(len(first), len(second)):
                raise ValueError(f"pair {i}: {failure}")
            rows.append((first, second))
        order = sorted(range(len(rows)), key=lambda i: -sum(map(len, rows[i])))
        result_N = torch.zeros(len(rows), dtype=torch.float64)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            with torch.inference_mode():
                result_N[batch] = self._score([rows[i] for i in batch]).double().cpu()
        return result_N

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """Over the whole vocabulary; see `TextModel`. All prompts of a call are read together: what they
        begin with in common is read once."""
        wanted = first_tokens(self.tokenizer, labels, "" if self.is_seq2seq or self.chat else after)
        ids = [self._prompt_ids(prompt) for prompt in prompts]
        failures = {i: failure for i, row in enumerate(ids) if (failure := self._misfit(len(row), 0))}
        fitting = [i for i in range(len(ids)) if i not in failures]
        rows = log_probabilities(self, [ids[i] for i in fitting], wanted, top)
        found = dict(zip(fitting, rows, strict=True))
        for i in range(len(ids)):
            yield failures.get(i) or found[i]

    def continuations(
        self,
        prompts: Sequence[str],
        prefixes: Sequence[Sequence[str]],
        *,
        beams: int = 1,
        seeds: Sequence[int] | None = None,
        decay: float = DECAY,
        floor: float = FLOOR,
    ) -> Iterator[str]:
        """Exactly `max_new_tokens` more tokens of each prompt, special ones among them; causal models only.

        Prompts are read as they are (no template), behind the token with which the tokenizer begins texts if
        there is one, and the model's own generation settings are set aside.

        Args:
            prompts: texts that fit the model's context.
            prefixes: of each prompt what self-debiasing puts before it; as many for all prompts.
            beams: at least 1; with seeds 1.
            seeds: one for each prompt, to draw tokens; None takes the likeliest.
            decay, floor: of self-debiasing, see `self_debiasing.debiased`.
        """
        for start in range(0, len(prompts), self.batch_size):
            part = slice(start, start + self.batch_size)
            prefixed = [
                self.text_ids([*map("".join, zip(column, prompts[part], strict=True))])
                for column in zip(*prefixes[part], strict=True)
            ]
            rows = continued(
                self.model,
                self.text_ids(prompts[part]),
                prefixed,
                new_tokens=self.max_new_tokens,
                pad=self.pad,
                beams=beams,
                seeds=None if seeds is None else seeds[part],
                decay=decay,
                floor=floor,
            )
            # Special tokens stay, as the authors' do.
            yield from self.tokenizer.batch_decode(rows, skip_special_tokens=False)

    def plain_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts without special tokens."""
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        return ids

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The same behind what the tokenizer begins texts with: texts that a causal model goes on with."""
        return [[*self.lead, *ids] for ids in self.plain_ids(texts)]

    def token_counts(self, prompts: Sequence[str]) -> list[int]:
        """How many tokens each prompt has, special ones included."""
        return [len(self._prompt_ids(prompt)) for prompt in prompts]

    def _prompt_ids(self, prompt: str) -> list[int]:
        if not self.chat:
            return list(self.tokenizer(prompt, verbose=False)["input_ids"])
        turns = [{"role": "user", "content": prompt}]
        # The template writes the special tokens itself.
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _misfit(self, length: int, new: int) -> TextFailure | None:
        """Why a prompt of `length` tokens and an answer of `new` cannot be; None if they can."""
        if not length:
            return TextFailure("empty prompt")
        needed = max(length, new) if self.is_seq2seq else length + new
        if self.limit is None or needed <= self.limit:
            return None
        return TextFailure(
            "longer than the model's context",
            f"{length} tokens and {new} new ones, where the model takes {self.limit}",
        )

    def padded(self, ids: list[list[int]], *, left: bool = False) -> dict[str, Tensor]:
        """Rows of token ids as the model's inputs: input_ids and attention_mask, (B, T) each."""
        ids_BT, mask_BT = padded(ids, self.pad, self.device, left=left)
        return {"input_ids": ids_BT, "attention_mask": mask_BT}

    def _score(self, rows: list[tuple[list[int], list[int]]]) -> Tensor:
        """log P of every row's second part, (B,)."""
        if not self.is_seq2seq:
            spans = [(len(first), len(first) + len(second) - 1) for first, second in rows]
            inputs = self.padded([[*first, *second] for first, second in rows])
            at_B1E = torch.tensor(spans, device=self.device)[:, None]
            return log_likelihoods(self.model, inputs, at_B1E).total_BC[:, 0]
        # BART's kin begin every answer with a token that says nothing; it is given, not scored.
        forced = self.model.generation_config.forced_bos_token_id
        lead = [] if forced is None else [forced]
        labels_BT = self.padded([[*lead, *second] for _, second in rows])["input_ids"]
        inputs = {**self.padded([first for first, _ in rows]), "labels": labels_BT}
        logits_BTV = self.model(**inputs, use_cache=False).logits
        sums = []
        for b, (_, second) in enumerate(rows):
            log_TV = logits_BTV[b, len(lead) : len(lead) + len(second)].float().log_softmax(-1)
            sums.append(log_TV.gather(1, torch.tensor(second, device=log_TV.device)[:, None]).sum())
        return torch.stack(sums)


def _load(path: str, device: torch.device, dtype: str) -> tuple[Any, Any]:
    config = model_config(path)
    if dtype == "auto" and device.type == "cpu":
        dtype = "float32"
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = kind.from_pretrained(
            path,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except Exception as error:  # OSError, ValueError, KeyError, the bare Exception of tokenizers
        raise _unusable(path, error) from error
    refuse_nonfinite(model.state_dict(), f"hf:{path}")
    if not tokenizer.is_fast or not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        # Without a vocabulary transformers makes one up in which every word is unknown.
        raise ValueError(f"model {path!r} has no fast tokenizer with a vocabulary; add the tokenizer's files")
    return float32_logits(model.to(device).eval()), tokenizer


def model_config(path: str) -> Any:
    """The configuration of a model, which tells within a blink whether there is one.

    Raises:
        ValueError: there is none, or transformers does not know its kind.
    """
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise _unusable(path, error) from error


def _unusable(path: str, error: Exception) -> ValueError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ValueError(f"model {path!r} cannot be loaded: {reason}")


def weights_id(path: str, config: Any) -> str:
    """The Hub's revision; for a folder a hash of its settings and of the sizes and ends of its weight files,
    so that answers of a model that was trained on in the same place are not taken for its own."""
    folder = Path(path)
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None) or "")
    digest = hashlib.sha256()
    settings = [folder / name for name in ("config.json", "generation_config.json")]
    for file in (*filter(Path.is_file, settings), *sorted(folder.glob("*.safetensors"))):
        with open(file, "rb") as weights:
            size = file.stat().st_size
            weights.seek(max(0, size - (1 << 20)))
            digest.update(f"{file.name}:{size}:".encode() + weights.read())
    return digest.hexdigest()[:16]
