"""A causal or sequence-to-sequence model of transformers, on this machine, as a text model.

Tensor suffixes: N pairs, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from models.backbones import pick_device
from models.build import fingerprint, refuse_nonfinite
from models.cpu_kernels import use_linear_kernels
from models.language.likelihood import float32_logits, log_likelihoods, padded, reads_side_by_side
from models.language.next_token import first_tokens, log_probabilities
from models.language.self_debiasing import DECAY, continued
from models.language.text_models import PairError, TextFailure, TextModel
from storage.errors import as_data_error

logger = logging.getLogger(__name__)

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""Options for chat templates, as in training (data_modules/encoding/prompts.py): no chain of thought, and no
current date in the prompt."""

TOKENS_AT_ONCE = {"cpu": 256, "cuda": 32_768}
"""Tokens per batch for likelihoods: on a CPU, more would overflow the caches and need more padding."""
Ids = tuple[int, ...]
Pair = tuple[Ids, Ids]
"""Token ids of a prompt, and of its continuation."""


class LocalTextModel(TextModel):
    """A causal or sequence-to-sequence model of transformers, with logits in float32. The model's
    generation settings (such as a repetition penalty) apply, but decoding is greedy.

    Args:
        model, tokenizer: of transformers.
        name: identifies stored answers, together with a digest of the weights.
        device: `auto`, or a device of torch; ValueError for an absent one.
        max_new_tokens: limit on the length of an answer.
        batch_size: prompts per batch.
        chat_template: present prompts as a user's turn, if the tokenizer has a template.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        device: str = "auto",
        max_new_tokens: int = 64,
        batch_size: int = 8,
        chat_template: bool = True,
    ) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self.device = pick_device(device)
        self.tokens_at_once = TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cuda"])
        self.head: tuple[list[int], Any] = ([], None)
        """The common beginning of all prompts in the last call, and its keys and values."""
        if self.device.type == "cpu" and model.dtype == torch.float32:
            use_linear_kernels(model)
        self.model = float32_logits(model.to(self.device).eval())
        self.model.register_forward_hook(self._require_finite)
        self.config = self.model.config
        self.is_seq2seq = bool(self.config.is_encoder_decoder)
        self.chat = chat_template and bool(self.tokenizer.chat_template)
        self.limit: int | None = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        self.identity = {
            "name": self.name,
            "max_new_tokens": max_new_tokens,
            "temperature": 0,
            "chat_template": self.chat,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "weights": fingerprint(model),
        }
        self._backend = self.tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        row = self._backend.encode("a")
        is_special = row.special_tokens_mask
        self.lead: list[int] = row.ids[: is_special.index(0)]
        """The token with which the tokenizer begins every text (Llama, Gemma), or none (GPT-2)."""
        self.tail: list[int] = row.ids[len(row) - is_special[::-1].index(0) :] if self.is_seq2seq else []
        """The tokens with which a sequence-to-sequence model's tokenizer ends every text (T5, BART)."""
        pads = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        self.pad: int = next(i for i in pads if i is not None)
        chosen = self.model.generation_config
        forced = chosen.forced_bos_token_id
        self.forced: list[int] = [] if forced is None else [forced]
        """The fixed first token of every answer of BART and similar models; it is given, not scored."""
        chosen.do_sample, chosen.num_beams, chosen.max_length = False, 1, None
        chosen.temperature = chosen.top_p = chosen.top_k = None
        chosen.pad_token_id = self.pad
        template = (self.tokenizer.chat_template, TEMPLATE_OPTIONS) if self.chat else None
        asked = f"{self._backend.to_str()}{template}{chosen.to_json_string()}"
        self.identity["asked"] = hashlib.sha256(asked.encode()).hexdigest()[:16]

    def _require_finite(self, _: Any, __: Any, output: Any) -> None:
        """Raise ValueError where a row's last logits overflow: a model would write on, one token for ever."""
        logits = output.logits[:, -1] if output.logits.dim() == 3 else output.logits
        if not logits.amax().isfinite():
            raise ValueError(
                f"{self.name}: gives logits that are not finite numbers in {self.model.dtype}; choose another"
                " model"
            )

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """Yield only the new text, without special tokens. Prompts that leave no room in the model's context
        fail; their number is logged before generation starts."""
        fitting, failures = self._prepared(prompts, self.max_new_tokens)
        texts = self._written(fitting)
        for failure in failures:
            yield failure or next(texts).strip() or TextFailure("empty answer")

    def _prepared(self, prompts: Sequence[str], new: int) -> tuple[list[list[int]], list[TextFailure | None]]:
        """The token ids of the prompts that leave room for `new` more, and for each prompt why not."""
        ids = self._prompt_ids(prompts)
        failures = [self._misfit(len(row), new) for row in ids]
        if found := [failure for failure in failures if failure]:
            logger.warning("%d of %d prompts do not fit: %s", len(found), len(ids), found[0])
        return [row for row, failure in zip(ids, failures, strict=True) if not failure], failures

    def _written(self, ids: list[list[int]]) -> Iterator[str]:
        """The new texts behind prompts that fit."""
        for start in range(0, len(ids), self.batch_size):
            # Causal models are padded on the left, so that every prompt ends where its answer begins.
            inputs = self.padded(ids[start : start + self.batch_size], left=not self.is_seq2seq)
            with torch.inference_mode():
                out_BT = self.model.generate(**inputs, max_new_tokens=self.max_new_tokens)
            new_BT = out_BT if self.is_seq2seq else out_BT[:, inputs["input_ids"].shape[1] :]
            yield from self.tokenizer.batch_decode(new_BT, skip_special_tokens=True)

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """Score the continuation's tokens.

        A causal model reads prompt and continuation as one text, so a continuation includes its leading
        space, and white space at the end of the prompt moves to it. Its tokens are those after the
        prompt's, as in lm-evaluation-harness; if a token spans the boundary, the continuation is tokenised
        alone. An end token is not counted. A sequence-to-sequence model reads the prompt and generates the
        continuation, including the end token that it was trained to write. A prompt is read once for all
        its continuations, and a repeated pair once.

        Returns:
            Sums of the log-probabilities in nats, (N,) float64, and numbers of tokens, (N,); on the CPU.

        Raises:
            PairError: a continuation has no tokens, or a pair does not fit the model's context.
        """
        ids = self._pair_ids(pairs)
        for i, (first, second) in enumerate(ids):
            if not second:
                raise PairError(i, f"the continuation {pairs[i][1]!r} has no tokens")
            if failure := self._misfit(len(first), len(second)):
                raise PairError(i, str(failure))
        score = self._score_seq2seq if self.is_seq2seq else self._score_causal
        with torch.inference_mode():
            found = dict(score(list(dict.fromkeys(ids))))
        total_N = torch.tensor([found[pair] for pair in ids], dtype=torch.float64)
        return total_N, torch.tensor([len(second) for _, second in ids])

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """Over the whole vocabulary; see `TextModel`. All prompts of a call are read together, and their
        common beginning once."""
        wanted = first_tokens(self.tokenizer, labels, "" if self.is_seq2seq or self.chat else after)
        fitting, failures = self._prepared(prompts, 0)
        found = iter(log_probabilities(self, fitting, wanted, top))
        for failure in failures:
            yield failure or next(found)

    def continuations(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, beams: int = 1, decay: float = DECAY
    ) -> Iterator[str]:
        """Generate exactly `max_new_tokens` tokens after each prompt, special ones included; causal only.

        Prompts are used as they are (no template), after the tokenizer's initial token, if any. The model's
        own generation settings are ignored.

        Args:
            prompts: texts that fit the model's context.
            prefixes: self-debiasing's prefixes of each prompt; without any, the model is unchanged.
            beams: 1 is greedy.
            decay: of self-debiasing, see `self_debiasing.debiased`.
        """
        for start in range(0, len(prompts), self.batch_size):
            part = prompts[start : start + self.batch_size]
            rows = continued(
                self.model,
                self.text_ids(part),
                [self.text_ids([prefix + prompt for prompt in part]) for prefix in prefixes],
                new_tokens=self.max_new_tokens,
                pad=self.pad,
                beams=beams,
                decay=decay,
            )
            # Special tokens stay, as in the authors' code.
            yield from self.tokenizer.batch_decode(rows, skip_special_tokens=False)

    def plain_ids(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Return token ids of texts, without special tokens unless requested."""
        rows = self._backend.encode_batch(list(texts), add_special_tokens=special)
        return [row.ids for row in rows]

    def text_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The same after the tokenizer's initial tokens, for texts that a causal model continues."""
        return [[*self.lead, *ids] for ids in self.plain_ids(texts)]

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        if not self.chat:
            return self.plain_ids(prompts, special=True)
        how: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, **TEMPLATE_OPTIONS}
        turns = ([{"role": "user", "content": prompt}] for prompt in prompts)
        # The template includes the special tokens.
        return self.plain_ids([self.tokenizer.apply_chat_template(turn, **how) for turn in turns])

    def _pair_ids(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        apart = self.is_seq2seq or self.chat
        if not apart:  # white space at the end of the prompt moves to the continuation
            pairs = [(prompt.rstrip(), prompt[len(prompt.rstrip()) :] + text) for prompt, text in pairs]
        different = list(dict.fromkeys(prompt for prompt, _ in pairs))
        first_of = dict(zip(different, self._prompt_ids(different), strict=True))
        firsts = [first_of[prompt] for prompt, _ in pairs]
        seconds = self.plain_ids([continuation for _, continuation in pairs])
        if apart:
            seconds = [[*second, *self.tail] if second else [] for second in seconds]
        else:  # as one text, if the prompt's tokens do not depend on the continuation
            wholes = self._prompt_ids(["".join(pair) for pair in pairs])
            seconds = [
                whole[len(first) :] if whole[: len(first)] == first else second
                for first, second, whole in zip(firsts, seconds, wholes, strict=True)
            ]
        return [((*first,), (*second,)) for first, second in zip(firsts, seconds, strict=True)]

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

    def padded(self, ids: Sequence[Sequence[int]], *, left: bool = False) -> dict[str, Tensor]:
        """Pad rows of token ids to the model's inputs: input_ids and attention_mask, (B, T) each."""
        ids_BT, mask_BT = padded(ids, self.pad, self.device, left=left)
        return {"input_ids": ids_BT, "attention_mask": mask_BT}

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield batches of row indices, longest rows first; `tokens_at_once` limits padded batches."""
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            count = max(1, self.tokens_at_once // max(1, lengths[order[0]]))
            yield order[:count]
            order = order[count:]

    def _score_causal(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """log P of the second part of different pairs, in any order."""
        behind: dict[Ids, list[Ids]] = {}
        for prompt, part in pairs:
            behind.setdefault(prompt, []).append(part)
        rows = list[tuple[Ids, list[Ids]]]()
        window = getattr(self.config.get_text_config(), "sliding_window", None)
        for prompt, parts in behind.items():
            # A sliding window would cut them; few models cannot read them this way.
            together = self._side_by_side and (not window or len(prompt) + max(map(len, parts)) <= window)
            rows += [(prompt, parts)] if together else [(prompt, [part]) for part in parts]
        for batch in self.batches([len(prompt) + sum(map(len, parts)) for prompt, parts in rows]):
            some = [rows[r] for r in batch]
            inputs = self.padded([[*prompt, *chain.from_iterable(parts)] for prompt, parts in some])
            width, most = inputs["input_ids"].shape[1], max(len(parts) for _, parts in some)
            spans = []
            for prompt, parts in some:
                ends = list(accumulate(map(len, parts), initial=len(prompt)))
                spans.append([(a, b - 1) for a, b in pairwise(ends)])
                spans[-1] += [(width, width - 1)] * (most - len(parts))
            total_BC = log_likelihoods(self.model, inputs, torch.tensor(spans, device=self.device)).total_BC
            for (prompt, parts), total_C in zip(some, total_BC.double().tolist(), strict=True):
                yield from (((prompt, part), value) for part, value in zip(parts, total_C, strict=False))

    @cached_property
    def _side_by_side(self) -> bool:
        return reads_side_by_side(self.model)

    def _score_seq2seq(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """The same of an encoder and a decoder."""
        for batch in self.batches([len(first) + len(second) for first, second in pairs]):
            some = [pairs[i] for i in batch]
            labels_BT = self.padded([[*self.forced, *second] for _, second in some])["input_ids"]
            inputs = {**self.padded([first for first, _ in some]), "labels": labels_BT}
            logits_BTV = self.model(**inputs, use_cache=False).logits
            for pair, logits_TV in zip(some, logits_BTV, strict=True):
                log_TV = logits_TV[len(self.forced) :][: len(pair[1])].float().log_softmax(-1)
                chosen = torch.tensor(pair[1], device=log_TV.device)[:, None]
                yield pair, float(log_TV.gather(1, chosen).sum())


def load_text_model(
    path: str, *, device: str = "auto", dtype: str = "auto", **options: Any
) -> LocalTextModel:
    """Load a model from a folder or the Hub (safetensors only); `options` are those of `LocalTextModel`.

    Args:
        dtype: of the weights: auto is float32 on a CPU, where answers then do not depend on the batch, and
            the saved type on a GPU.

    Raises:
        ValueError: the model or its tokenizer cannot be loaded, or the device is absent.
    """
    if dtype == "auto" and pick_device(device).type == "cpu":
        dtype = "float32"
    with as_data_error(f"model {path!r} cannot be loaded"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model = kind.from_pretrained(path, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    refuse_nonfinite(model.state_dict(), f"hf:{path}")
    if not tokenizer.is_fast or not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        # Without a vocabulary, transformers invents one in which every word is unknown.
        raise ValueError(f"model {path!r} has no fast tokenizer with a vocabulary; add the tokenizer's files")
    return LocalTextModel(model, tokenizer, f"hf:{path}", device=device, **options)
