"""Heads that score tokens or choices, their models, and scores computed from logits.

Shape letters: B batch (rows or questions, or groups where there are variants), R rows, T tokens, D
hidden, V variants of a group, S subjects, E the two boundaries (start, end), N choices of a
question.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from interventune.models.backbones import ARCHITECTURES, EncoderModel, Inputs
from interventune.models.language.model_calls import by_length
from interventune.storage.progress import progress

Pooling = Literal["masked", "parity"]
LOW = torch.finfo(torch.float32).min
CPU_TOKENS = 1024
"""Tokens per batch on a CPU; more would overflow the caches."""


class QAOutput(NamedTuple):
    """Float32 logits of the first and last answer token, with the lowest finite number at
    padding.
    """

    start_BT: Tensor
    end_BT: Tensor


class SpanHead(nn.Module):
    """The span head of transformers' question-answering model. As in the papers, the softmax
    includes question and special tokens.
    """

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__()
        names = ARCHITECTURES[architecture].span_head
        self.layers = nn.Sequential(*(getattr(pretrained, name) for name in names))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> QAOutput:
        padding_BT1 = mask_BT.unsqueeze(-1) == 0
        logits_BTE = self.layers(hidden_BTD).float().masked_fill(padding_BT1, LOW)
        return QAOutput(*logits_BTE.unbind(-1))


def candidate_log_probs(start_RT: Tensor, end_RST: Tensor, candidate_BVSE: Tensor) -> Tensor:
    """Boundary log-probabilities (B, V, S, E) of given spans: natural logarithms of the softmax
    over tokens. A span's score is S = sqrt(p_start * p_end), as in the code of Li et al. 2020, so
    log S is the mean over E.

    Args:
        start_RT: logits of the B * V rows, with padding masked.
        end_RST: the same of the end, given each subject's start; S may be 1.
        candidate_BVSE: first and last token of each span.
    """
    start_RS, end_RS = candidate_BVSE.flatten(0, 1).unbind(-1)
    start_log_RS = start_RT.log_softmax(-1).gather(1, start_RS)
    end_log_RS1 = end_RST.log_softmax(-1).take_along_dim(end_RS.unsqueeze(-1), -1)
    log_prob_RSE = torch.stack((start_log_RS, end_log_RS1.squeeze(-1)), dim=-1)
    return log_prob_RSE.unflatten(0, candidate_BVSE.shape[:2])


def best_row_spans(
    start_BT: Tensor,
    end_BT: Tensor,
    may_start_BT: Tensor,
    may_end_BT: Tensor,
    max_answer_tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best span of every row: maximise start + end logit over start <= end < start +
    max_answer_tokens.

    Args:
        start_BT, end_BT: logits.
        may_start_BT, may_end_BT: where a span may start and end.
        max_answer_tokens: longest answer, in tokens.

    Returns:
        start_B, end_B (token indices) and score_B (sum of the two logits). A row without an allowed
        span has score -inf.
    """
    low = float("-inf")
    width = min(max_answer_tokens, start_BT.shape[1])
    start_BT = start_BT.masked_fill(~may_start_BT, low)
    # end_BTW[b, t, w] = end logit at t + w; no span may end after the last token.
    end_BTW = pad(end_BT.masked_fill(~may_end_BT, low), (0, width - 1), value=low).unfold(
        1, width, 1
    )
    score_B, flat_B = (start_BT.unsqueeze(-1) + end_BTW).flatten(1).max(-1)
    start_B = flat_B // width
    return start_B, start_B + flat_B % width, score_B


class QAModel(EncoderModel):
    """A model that answers questions about a text, with any heads."""

    unknown_at: ClassVar[int | None] = None
    """Position of `unknown` as a candidate of `group_log_probs`; None: the classification token."""
    max_answer_tokens = 30
    """Maximum length of a predicted span, in tokens."""

    def cls_positions(self, inputs: Inputs) -> Tensor:
        """Return the position of the classification token, (B,): last in XLNet's rows, first in all
        others.
        """
        mask_BT = inputs["attention_mask"]
        if self.architecture == "xlnet":
            return mask_BT.shape[1] - 1 - mask_BT.flip(1).argmax(1)
        return mask_BT.argmax(1)

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Boundary log-probabilities (B, V, S, E) of the subjects of whole groups, from the same
        softmax as in training; log S is the mean over E.

        Args:
            inputs: B * V rows, with the variants of a group in consecutive rows.
            context_BT: True at tokens allowed in an answer, for the same rows.
            candidate_BVSE: first and last token of each subject.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def score_rows(self, data: Any, *, tokens: int, what: str) -> Tensor:
        """`group_log_probs` (R, S, E) of all rows, float32, on the CPU, in their order; the model
        is in evaluation mode and in its precision. Rows of similar length are read together.

        Args:
            data: as interventune.data_modules.batching.group_set.GroupSet. Its `rows` builds a
                batch from row indices and a number that its width must be a multiple of: inputs
                (B, T), context (B, T) and candidates (B, 1, S, 2).
            tokens: limit on the tokens of a batch, including padding.
            what: label of the progress bar.
        """
        device = self.encoder.device
        length_R = data.lengths
        multiple = 8
        if device.type == "cpu":
            tokens = min(tokens, CPU_TOKENS)
            multiple = 1
        batches = list(by_length(-(-length_R // multiple) * multiple, tokens))
        if not batches:
            return torch.empty(0, 2, 2)
        scores = list[Tensor]()  # on the device until the last batch, so that it never waits

        def moved(values: Tensor) -> Tensor:
            """On the device, without waiting for it."""
            pinned = values.pin_memory() if device.type == "cuda" else values
            return pinned.to(device, non_blocking=True)

        with progress(None, what, "row", len(length_R)) as bar:
            for index in batches:
                inputs, *rest = data.rows(index, multiple)
                inputs = {name: moved(values) for name, values in inputs.items()}
                log_prob_BVSE = self.group_log_probs(inputs, *map(moved, rest))
                scores.append(log_prob_BVSE.squeeze(1).float())
                bar.update(len(index))
        return torch.cat(scores).cpu()[np.argsort(np.concatenate(batches))]


class SpanPrediction(NamedTuple):
    """The best span of every row, its start + end logit, and that of the classification token (no
    answer).
    """

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    null_B: Tensor


class SpanModel(QAModel):
    """An encoder with a span head: transformers' question-answering model, split into its parts."""

    heads = "span"
    starts_from = ("rationale",)

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        self.span_head = SpanHead(pretrained, architecture)

    def forward(self, inputs: Inputs) -> QAOutput:
        """Encode a padded batch; `inputs` as in `encode`."""
        return self.span_head(self.encode(inputs), inputs["attention_mask"])

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Computed from the softmax over all tokens, including the question's."""
        start_BT, end_BT = self(inputs)
        return candidate_log_probs(start_BT, end_BT.unsqueeze(1), candidate_BVSE)

    def predict_spans(self, inputs: Inputs, context_BT: Tensor) -> SpanPrediction:
        """The best span of every row, by start + end logit, of the tokens where `context_BT` is
        True.
        """
        start_BT, end_BT = self(inputs)
        spans = best_row_spans(start_BT, end_BT, context_BT, context_BT, self.max_answer_tokens)
        null_B = (start_BT + end_BT).gather(1, self.cls_positions(inputs)[:, None]).squeeze(-1)
        return SpanPrediction(*spans, null_B)


def masked_mean(hidden_RTD: Tensor, mask_RT: Tensor) -> Tensor:
    """Mean hidden state (R, D) over the tokens of every row except padding, in float32."""
    weight_RT1 = (mask_RT != 0).unsqueeze(-1).float()
    return (hidden_RTD.float() * weight_RT1).sum(1) / weight_RT1.sum(1).clamp_min(1)


class ChoiceModel(EncoderModel):
    """An encoder with one linear layer over the mean of its last hidden states, as in the code of
    the system that Shen and Kejriwal probe (section 2.2).

    Args:
        pooling: `masked` takes the mean over the tokens; `parity` over all positions, padding
            included, as the authors' code does: logits then depend on the padding.
        generator: of the head's weights; None takes torch's global one.
    """

    heads = "choice"
    starts_from = ("span", "rationale", "xlnet")

    def __init__(
        self,
        pretrained: Any,
        architecture: str,
        *,
        pooling: Pooling = "masked",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(pretrained, architecture)
        self.pooling = pooling
        self.head_options = {"pooling": pooling}
        self.choice_head = self.fresh(nn.Linear(self.config.hidden_size, 1), generator)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits (B, N) of the choices, which an encoder reads with their prompts as rows; float32.
        `inputs` as in `encode`, but each (B, N, T).
        """
        B, N, _ = inputs["attention_mask"].shape
        rows = {name: value.flatten(0, 1) for name, value in inputs.items()}
        mask_RT = rows["attention_mask"]
        pooled_RD = masked_mean(
            self.encode(rows), mask_RT if self.pooling == "masked" else torch.ones_like(mask_RT)
        )
        # In bfloat16 two choices would often tie.
        with torch.autocast(pooled_RD.device.type, enabled=False):
            return self.choice_head(pooled_RD.to(self.choice_head.weight.dtype)).view(B, N).float()
