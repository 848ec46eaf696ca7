"""A causal or sequence-to-sequence model of transformers, on this machine, as a text model.

Tensor suffixes: N pairs, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from models.backbones import pick_device
from models.cpu_kernels import use_linear_kernels
from models.language.likelihood import float32_logits, log_likelihoods, padded, reads_side_by_side
from models.language.next_token import first_tokens, log_probabilities
from models.language.self_debiasing import DECAY, continued
from models.language.text_models import Ability, PairError, Settings, TextFailure, TextModel
from models.pretrained import fingerprint, refuse_nonfinite

logger = logging.getLogger(__name__)

TEMPLATE_OPTIONS = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""What chat templates are told, as in training (data_modules/encoding/prompts.py): answers come without a
train of thought, and no prompt changes with the day."""

TOKENS_AT_ONCE = {"cpu": 256, "cuda": 32_768}
"""Tokens of a batch whose likelihoods are wanted: on a CPU more leave the caches, and take more padding."""
_Behind = dict[tuple[int, ...], dict[tuple[int, ...], list[int]]]
"""Of each prompt what stands behind it, with the numbers of these pairs."""


class LocalTextModel(TextModel):
    """A causal or sequence-to-sequence model of transformers, with logits in float32. Its generation settings
    (such as a repetition penalty) hold, except that decoding is greedy.

    Args:
        model, tokenizer: of transformers.
        name: what answers are kept under, with a digest of the weights.
        device: `auto`, or a device of torch; ValueError where there is no such device.
        max_new_tokens: bound on the length of an answer.
        batch_size: prompts that are answered at once.
        chat_template: present prompts as a user's turn, if the tokenizer has a template.
    """

    can: frozenset[Ability] = frozenset({"write", "next_token", "likelihood"})

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
        """What all prompts of the last call begin with, and its keys and values."""
        self._side_by_side: bool | None = None
        if self.device.type == "cpu" and model.dtype == torch.float32:
            use_linear_kernels(model)
        self.model = float32_logits(model.to(self.device).eval())
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
            "weights": fingerprint(model),
        }
        row = self.tokenizer("a", return_special_tokens_mask=True)
        mask, ids = row["special_tokens_mask"], row["input_ids"]
        self.lead: list[int] = ids[: sum(1 for _ in takewhile(bool, mask))]
        """What the tokenizer begins every text with: one token (Llama, Gemma), or none (GPT-2)."""
        ending = sum(1 for _ in takewhile(bool, reversed(mask))) if self.is_seq2seq else 0
        self.tail: list[int] = ids[len(ids) - ending :]
        """What a sequence-to-sequence model's tokenizer ends every text with (T5, BART)."""
        self.pad = next(
            i for i in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0) if i is not None
        )
        chosen = self.model.generation_config
        chosen.do_sample, chosen.num_beams, chosen.max_length = False, 1, None
        chosen.temperature = chosen.top_p = chosen.top_k = None
        chosen.pad_token_id = self.pad
        # It would store the settings of its last call too; transformers sets them anew in every call.
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        template = self.tokenizer.chat_template if self.chat else None
        texts = (backend.to_str(), str((template, TEMPLATE_OPTIONS)), chosen.to_json_string())
        for what, text in zip(("tokenizer", "template", "generation"), texts, strict=True):
            self.settings[what] = hashlib.sha256(text.encode()).hexdigest()[:16]

    def _require_finite(self, _: Any, __: Any, output: Any) -> None:
        """Raise ValueError where a row's last logits overflow: a model would write on, one token for ever."""
        if not output.logits[..., -1, :].amax().isfinite():
            raise ValueError(
                f"{self.name}: gives logits that are not finite numbers in {self.model.dtype}; choose another"
                " model"
            )

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        """The new text alone, without special tokens. Prompts that leave no room in the model's context fail;
        how many is logged before anything is generated."""
        ids = self._prompt_ids(prompts)
        failures = {
            i: failure
            for i, row in enumerate(ids)
            if (failure := self._misfit(len(row), self.max_new_tokens))
        }
        if failures:
            logger.warning(
                "%d of %d prompts do not fit: %s", len(failures), len(ids), next(iter(failures.values()))
            )
        for start in range(0, len(ids), self.batch_size):
            batch = range(start, min(start + self.batch_size, len(ids)))
            fitting = [i for i in batch if i not in failures]
            texts = dict(zip(fitting, self._written([ids[i] for i in fitting]), strict=True))
            for i in batch:
                yield failures.get(i) or texts[i].strip() or TextFailure("empty answer")

    def _written(self, ids: list[list[int]]) -> list[str]:
        """The new texts behind some prompts."""
        if not ids:
            return []
        # A causal model gets padding on the left: every prompt ends where its answer begins.
        inputs = self.padded(ids, left=not self.is_seq2seq)
        with torch.inference_mode():
            out_BT = self.model.generate(**inputs, max_new_tokens=self.max_new_tokens)
        new_BT = out_BT if self.is_seq2seq else out_BT[:, inputs["input_ids"].shape[1] :]
        written: list[str] = self.tokenizer.batch_decode(new_BT, skip_special_tokens=True)
        return written

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """Of the continuation's tokens.

        A causal model reads prompt and continuation as one text, so a continuation brings its own leading
        space, and gets white space from the end of the prompt. Its tokens are those behind the prompt's, as
        lm-evaluation-harness has it; where a token spans the boundary, its own. An end token is not counted.
        A sequence-to-sequence model reads the prompt and writes the continuation, with the end token that it
        was trained to write. A prompt is read once for all its continuations, and a pair that repeats once.

        Returns:
            Sums of their log-probabilities in nats, (N,) float64, and how many they are, (N,); on the CPU.

        Raises:
            PairError: a continuation has no tokens, or a pair does not fit the model's context.
        """
        firsts, seconds = self._pair_ids(pairs)
        for i, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
            if not second:
                raise PairError(i, f"the continuation {pairs[i][1]!r} has no tokens")
            if failure := self._misfit(len(first), len(second)):
                raise PairError(i, str(failure))
        behind: _Behind = {}
        for i, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
            behind.setdefault((*first,), {}).setdefault((*second,), []).append(i)
        total_N = torch.zeros(len(pairs), dtype=torch.float64)
        score = self._score_seq2seq if self.is_seq2seq else self._score_causal
        with torch.inference_mode():
            for numbers, value in score(behind):
                total_N[numbers] = value
        return total_N, torch.tensor([len(second) for second in seconds])

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """Over the whole vocabulary; see `TextModel`. All prompts of a call are read together: what they
        begin with in common is read once."""
        wanted = first_tokens(self.tokenizer, labels, "" if self.is_seq2seq or self.chat else after)
        ids = self._prompt_ids(prompts)
        failures = {i: failure for i, row in enumerate(ids) if (failure := self._misfit(len(row), 0))}
        fitting = [i for i in range(len(ids)) if i not in failures]
        rows = log_probabilities(self, [ids[i] for i in fitting], wanted, top)
        found = dict(zip(fitting, rows, strict=True))
        for i in range(len(ids)):
            yield failures.get(i) or found[i]

    def continuations(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, beams: int = 1, decay: float = DECAY
    ) -> Iterator[str]:
        """Exactly `max_new_tokens` more tokens of each prompt, special ones among them; causal models only.

        Prompts are read as they are (no template), behind the token with which the tokenizer begins texts if
        there is one, and the model's own generation settings are set aside.

        Args:
            prompts: texts that fit the model's context.
            prefixes: what self-debiasing puts before each prompt; none is the model as it is.
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

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        if not prompts:
            return []
        if not self.chat:
            return list(self.tokenizer(list(prompts), verbose=False)["input_ids"])
        # The template writes the special tokens itself.
        write = partial(
            self.tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True, **TEMPLATE_OPTIONS
        )
        return self.plain_ids([write([{"role": "user", "content": prompt}]) for prompt in prompts])

    def _pair_ids(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        """The token ids of all prompts, and of what stands behind them."""
        if not self.is_seq2seq and not self.chat:  # white space at the end of a prompt goes over
            pairs = [(prompt.rstrip(), prompt[len(prompt.rstrip()) :] + text) for prompt, text in pairs]
        different = list(dict.fromkeys(prompt for prompt, _ in pairs))
        ids_of = dict(zip(different, self._prompt_ids(different), strict=True))
        firsts = [ids_of[prompt] for prompt, _ in pairs]
        seconds = self.plain_ids([continuation for _, continuation in pairs])
        if self.is_seq2seq or self.chat:
            return firsts, [[*second, *self.tail] if second else [] for second in seconds]
        # Of one text wherever the prompt's tokens do not depend on what follows.
        wholes = self._prompt_ids(["".join(pair) for pair in pairs])
        return firsts, [
            whole[len(first) :] if whole[: len(first)] == first else second
            for first, second, whole in zip(firsts, seconds, wholes, strict=True)
        ]

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

    def read_in_batches(self, lengths: Sequence[int], read: Callable[[list[int]], None]) -> None:
        """Have all rows read, longest first, as many at once as `tokens_at_once` allows, padding included.

        Args:
            lengths: tokens of each row.
            read: reads the rows of these numbers.
        """
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        while order:
            count = max(1, self.tokens_at_once // max(1, lengths[order[0]]))
            read(order[:count])
            order = order[count:]

    def _score_causal(self, behind: _Behind) -> list[tuple[list[int], float]]:
        """The numbers of equal pairs, and log P of their second part."""
        rows = list[tuple[tuple[int, ...], list[tuple[int, ...]]]]()
        for prompt, continuations in behind.items():
            together = self._packs(prompt, list(continuations))
            rows += [
                (prompt, part) for part in ([[*continuations]] if together else [[x] for x in continuations])
            ]
        found: list[tuple[list[int], float]] = []

        def read(batch: list[int]) -> None:
            some = [rows[r] for r in batch]
            inputs = self.padded([[*prompt, *chain.from_iterable(parts)] for prompt, parts in some])
            width, most = inputs["input_ids"].shape[1], max(len(parts) for _, parts in some)
            spans = []
            for prompt, parts in some:
                ends = list(accumulate((len(part) for part in parts), initial=len(prompt)))
                spans.append([(a, b - 1) for a, b in pairwise(ends)])
                spans[-1] += [(width, width - 1)] * (most - len(parts))
            total_BC = log_likelihoods(self.model, inputs, torch.tensor(spans, device=self.device)).total_BC
            for (prompt, parts), total_C in zip(some, total_BC.double().tolist(), strict=True):
                found.extend(
                    (behind[prompt][part], value) for part, value in zip(parts, total_C, strict=False)
                )

        self.read_in_batches([len(prompt) + sum(map(len, parts)) for prompt, parts in rows], read)
        return found

    def _packs(self, prompt: Sequence[int], continuations: Collection[Sequence[int]]) -> bool:
        """Whether continuations may stand in one row: the model can read them so, and no window cuts it."""
        if self._side_by_side is None:
            self._side_by_side = reads_side_by_side(self.model)
        window = getattr(self.config.get_text_config(), "sliding_window", None)
        return self._side_by_side and (not window or len(prompt) + max(map(len, continuations)) <= window)

    def _score_seq2seq(self, behind: _Behind) -> list[tuple[list[int], float]]:
        """The same of an encoder and a decoder."""
        rows = [
            (first, second, numbers) for first, some in behind.items() for second, numbers in some.items()
        ]
        # BART's kin begin every answer with a token that says nothing; it is given, not scored.
        forced = self.model.generation_config.forced_bos_token_id
        lead = [] if forced is None else [forced]
        found: list[tuple[list[int], float]] = []

        def read(batch: list[int]) -> None:
            some = [rows[r] for r in batch]
            labels_BT = self.padded([[*lead, *second] for _, second, _ in some])["input_ids"]
            inputs = {**self.padded([[*first] for first, _, _ in some]), "labels": labels_BT}
            logits_BTV = self.model(**inputs, use_cache=False).logits
            for (_, second, numbers), logits_TV in zip(some, logits_BTV, strict=True):
                log_TV = logits_TV[len(lead) : len(lead) + len(second)].float().log_softmax(-1)
                chosen = torch.tensor(second, device=log_TV.device)[:, None]
                found.append((numbers, float(log_TV.gather(1, chosen).sum())))

        self.read_in_batches([len(first) + len(lead) + len(second) for first, second, _ in rows], read)
        return found


def load_text_model(
    path: str, *, device: str = "auto", dtype: str = "auto", **options: Any
) -> LocalTextModel:
    """A model of a folder or the Hub (safetensors only).

    Args:
        path: where it is.
        device: as of `LocalTextModel`.
        dtype: of the weights: auto is float32 on a CPU, where answers then do not depend on the batch, and on
            a GPU what the model was saved in.
        options: of `LocalTextModel`.

    Raises:
        ValueError: the model or its tokenizer cannot be loaded, or there is no such device.
    """
    if dtype == "auto" and pick_device(device).type == "cpu":
        dtype = "float32"
    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model = kind.from_pretrained(path, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    except Exception as error:  # OSError, ValueError, KeyError, the bare Exception of tokenizers
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"model {path!r} cannot be loaded: {reason}") from error
    refuse_nonfinite(model.state_dict(), f"hf:{path}")
    if not tokenizer.is_fast or not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        # Without a vocabulary transformers makes one up in which every word is unknown.
        raise ValueError(f"model {path!r} has no fast tokenizer with a vocabulary; add the tokenizer's files")
    return LocalTextModel(model, tokenizer, f"hf:{path}", device=device, **options)
