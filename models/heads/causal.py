"""A decoder that answers: it scores given texts after a prompt, and generates text.

Shape letters: B rows (groups if there are variants), T tokens, D hidden, V variants of a group, S
subjects, E the boundaries of a score (one here) or of a text's tokens (first, last).
"""

from typing import Any

import torch
from torch import Tensor

from interventune.models.backbones import Inputs
from interventune.models.language.local_model import LocalTextModel
from interventune.models.language.model_calls import float32_logits, log_likelihoods
from interventune.models.language.text_models import TextFailure

from .span import QAModel

MAX_NEW_TOKENS = 32
"""Limit on an answer in the validation of a training."""


class CausalModel(QAModel):
    """A causal language model of transformers; `encoder` is the whole model with its
    output head.
    """

    heads = "causal"

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        self.encoder = float32_logits(pretrained)

    @property
    def max_tokens(self) -> int | None:
        """Return the longest row, limited by a sliding window if the model has one."""
        names = ("max_position_embeddings", "sliding_window")
        limits = [getattr(self.config, name, None) for name in names]
        return min(filter(None, limits), default=None)

    def _taken(self, inputs: Inputs) -> dict[str, Any]:
        position_BT = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return super()._taken(inputs) | {"position_ids": position_BT, "use_cache": False}

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """log S of the two subjects, with one boundary instead of two: (B, V, 2, 1). S is the
        softmax over the candidates of the mean log-likelihood of their tokens after a row's prompt.

        Args:
            inputs: prompts followed by the candidates (data_modules/batching/candidates.py).
            context_BT: ignored.
            candidate_BVSE: first and last token of each candidate in the row: the two subjects,
                optionally with `unknown`, which gets 1 - S(x1) - S(x2).
        """
        log_share_RS = self.log_shares(inputs, candidate_BVSE.flatten(0, 1))[:, :2]
        return log_share_RS.unflatten(0, candidate_BVSE.shape[:2]).unsqueeze(-1)

    def log_shares(self, inputs: Inputs, candidate_BCE: Tensor) -> Tensor:
        """log S of all candidates after the prompts of rows, (B, C)."""
        first_BC, last_BC = candidate_BCE.unbind(-1)
        total_BC = log_likelihoods(self.encoder, inputs, candidate_BCE)
        return (total_BC / (last_BC - first_BC + 1)).log_softmax(-1)

    def answer_likelihoods(self, inputs: Inputs, start_B: Tensor, end_B: Tensor) -> Tensor:
        """Log-likelihoods (B,) of the tokens from `start_B` to `end_B`, given those before them."""
        answer_B1E = torch.stack((start_B, end_B), -1).unsqueeze(1)
        return log_likelihoods(self.encoder, inputs, answer_B1E).squeeze(1)

    def write(self, inputs: Inputs, start_B: Tensor, tokens: Any) -> list[tuple[str, str]]:
        """Write greedily after each prompt; return texts with the reason of a failure, or "".

        Args:
            inputs: rows of prompts; tokens from column `start_B` on, such as an answer, are
                ignored.
            tokens: the tokenizer, as `interventune.data_modules.encoding.prompts.PromptTokens`.
        """
        at_T = torch.arange(inputs["input_ids"].shape[1], device=start_B.device)
        prompt_BT = (inputs["attention_mask"] != 0) & (at_T < start_B[:, None])
        pairs = zip(inputs["input_ids"], prompt_BT, strict=True)
        rows = [tuple(ids_T[prompt_T].tolist()) for ids_T, prompt_T in pairs]
        writer = LocalTextModel(self.encoder, tokens, "", MAX_NEW_TOKENS, len(rows))
        return [
            ("", text.reason) if isinstance(text, TextFailure) else (text, "")
            for text in writer.continued(rows)
        ]
