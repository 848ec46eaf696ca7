"""Heads for answers that are a span, yes, no or unknown, and their models: the papers' rationale
heads, and XLNet's, which also answer with numbers and options (Chaturvedi et al. 2023, section 4.2;
what the paper leaves open is as in the authors' code).

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), K selected
tokens; L answers (types, then tokens); in groups V variants, S subjects, and E the two boundaries.
Of XLNet's heads N number classes, O option classes, K candidate starts, E candidate ends for each
start, P all pairs of both.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from interventune.models.backbones import ARCHITECTURES, Inputs

from .span import LOW, QAModel, SpanHead, best_row_spans, candidate_log_probs

Tagged = Literal["story", "all"]

TYPES = 3
"""yes, no, unknown."""
BEAM = 5
"""Number of candidate starts, and of candidate ends for each start (the authors' code)."""
NUMBERS = 12
"""0 = no number word, then none, one ... ten (the authors' code)."""
OPTIONS = 3
"""0 = no option, the word before "or", the word after it."""


class AnswerPrediction(NamedTuple):
    """The best span of every window, and the scores of the other answers; numbers and options only
    with XLNet's heads.
    """

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    """Score of the span: the sum of its two logits (with XLNet's heads, log-probabilities). -inf if
    no span is allowed.
    """
    type_BC: Tensor
    """Scores of yes, no, unknown, comparable with the span's: twice the logit, since the span sums
    two (with XLNet's heads, probabilities).
    """
    number_B: Tensor | None = None
    """The best of the number classes 1 to 11, with its probability."""
    number_score_B: Tensor | None = None
    option_B: Tensor | None = None
    """The better of the option classes 1 and 2, with its probability."""
    option_score_B: Tensor | None = None


class RationaleOutput(NamedTuple):
    """Float32 logits of the first and last answer token, of yes, no and unknown, and of the
    rationale, with the lowest finite number at padding and untagged tokens.
    """

    start_BT: Tensor
    end_BT: Tensor
    type_BC: Tensor
    rationale_BT: Tensor


class RationaleModel(QAModel):
    """Span head and rationale heads (Chaturvedi et al. 2023, section 4.2); yes, no, unknown and all
    positions share one softmax per boundary, as in the authors' code.

    Args:
        tagged: Which tokens are tagged and attended over: those of the story, as in the paper's
            equations, or all but padding, as in the authors' code.
    """

    heads = "rationale"
    starts_from = ("span",)
    unknown_at = -1  # the last type, just before the tokens

    def __init__(self, pretrained: Any, architecture: str, *, tagged: Tagged = "story") -> None:
        super().__init__(pretrained, architecture)
        self.tagged = tagged
        self.head_options = {"tagged": tagged}
        self.span_head = SpanHead(pretrained, architecture)
        self.answer_heads = self.fresh(RationaleHeads(self.config.hidden_size))

    def forward(self, inputs: Inputs, context_BT: Tensor) -> RationaleOutput:
        """Encode a padded batch; `context_BT` is True at the tokens of the story."""
        hidden_BTD = self.encode(inputs)
        start_BT, end_BT = self.span_head(hidden_BTD, inputs["attention_mask"])
        tagged_BT = self.tagged_tokens(inputs, context_BT)
        cls_B = self.cls_positions(inputs)
        type_BC, rationale_BT = self.answer_heads(hidden_BTD, tagged_BT, cls_B)
        return RationaleOutput(start_BT, end_BT, type_BC, rationale_BT)

    def tagged_tokens(self, inputs: Inputs, context_BT: Tensor) -> Tensor:
        """True (B, T) at the tokens that are tagged and attended over."""
        return context_BT if self.tagged == "story" else inputs["attention_mask"] != 0

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Computed from the softmax over yes, no, unknown and the positions."""
        output = self(inputs, context_BT)
        start_RL = torch.cat((output.type_BC, output.start_BT), dim=1)
        end_RL = torch.cat((output.type_BC, output.end_BT), dim=1)
        return candidate_log_probs(start_RL, end_RL.unsqueeze(1), candidate_BVSE + TYPES)

    def predict_answers(
        self, inputs: Inputs, context_BT: Tensor, start_allowed_BT: Tensor
    ) -> AnswerPrediction:
        """Find the best span of every window, and score the other answers.

        Args:
            context_BT: True at tokens allowed in an answer.
            start_allowed_BT: True at those where a span may also start: tokens that no other window
                shows with more context.
        """
        start_BT, end_BT, type_BC, _ = self(inputs, context_BT)
        starts_BT = context_BT & start_allowed_BT
        best = best_row_spans(start_BT, end_BT, starts_BT, context_BT, self.max_answer_tokens)
        return AnswerPrediction(*best, 2 * type_BC)


def states_at(hidden_BTD: Tensor, at_BK: Tensor) -> Tensor:
    """Hidden states (B, K, D) at given tokens."""
    return hidden_BTD.take_along_dim(at_BK.unsqueeze(-1), dim=1)


def after_mean(hidden_BTD: Tensor, cls_B: Tensor, averaged_BTD: Tensor, logit_BT: Tensor) -> Tensor:
    """The mean of states, weighted by the softmax of logits, with the hidden state of the
    classification token: (B, 2 D).
    """
    weight_B1T = logit_BT.softmax(-1).to(averaged_BTD.dtype).unsqueeze(1)
    mean_B1D = weight_B1T @ averaged_BTD
    cls_B1D = states_at(hidden_BTD, cls_B.unsqueeze(-1))
    return torch.cat((mean_B1D, cls_B1D.to(mean_B1D.dtype)), dim=-1).squeeze(1)


class RationaleHeads(nn.Module):
    """Tags the rationale and chooses between yes, no and unknown by attention over the tagged
    states, without biases (Chaturvedi et al. 2023, equations 3 to 6).
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        D = hidden_size
        self.rationale, self.attention = (
            nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, 1, bias=False))
            for _ in range(2)
        )
        self.unknown = nn.Linear(2 * D, 1, bias=False)
        self.yes_no = nn.Linear(2 * D, 2, bias=False)

    def forward(
        self, hidden_BTD: Tensor, tagged_BT: Tensor, cls_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return type_BC, logits of yes, no, unknown, and rationale_BT, logits of the rationale
        with the lowest finite number at untagged tokens; both float32.

        Args:
            hidden_BTD: last hidden states.
            tagged_BT: True at the tokens that are tagged and attended over.
            cls_B: position of the classification token.
        """
        others_BT = ~tagged_BT
        rationale_BT = self.rationale(hidden_BTD).squeeze(-1).float().masked_fill(others_BT, LOW)
        weighted_BTD = rationale_BT.sigmoid().to(hidden_BTD.dtype).unsqueeze(-1) * hidden_BTD
        logit_BT = self.attention(weighted_BTD).squeeze(-1).float().masked_fill(others_BT, LOW)
        both = after_mean(hidden_BTD, cls_B, weighted_BTD, logit_BT)
        return torch.cat((self.yes_no(both), self.unknown(both)), dim=-1).float(), rationale_BT


class XLNetOutput(NamedTuple):
    """Float32 logits of the first answer token, and of the last given the first, the lowest finite
    number where not allowed; of yes, no, unknown (three decisions), number and option; last hidden
    states.
    """

    start_BT: Tensor
    end_BT: Tensor
    type_BC: Tensor
    number_BN: Tensor
    option_BO: Tensor
    hidden_BTD: Tensor


class XLNetModel(QAModel):
    """An encoder, XLNet or another, with XLNet's answer heads; the start logits come from a
    one-layer span head, if there is one.
    """

    heads = "xlnet"
    starts_from = ("span",)
    max_answer_tokens = 16  # as in the authors' code

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        self.answer_heads = self.fresh(XLNetAnswerHeads(self.config.hidden_size))
        first = getattr(pretrained, ARCHITECTURES[architecture].span_head[0])
        if isinstance(first, nn.Linear):
            start = {"weight": first.weight[:1], "bias": first.bias[:1]}
            self.answer_heads.start.load_state_dict(start)

    def forward(
        self, inputs: Inputs, context_BT: Tensor, start_B: Tensor | None = None
    ) -> XLNetOutput:
        """Encode a padded batch.

        Args:
            context_BT: True at tokens allowed in an answer; both softmaxes include these tokens and
                the classification token, which represents all answers that are not spans.
            start_B: the first answer token on which the end logits are conditioned, in training the
                gold one; None: the most probable one.
        """
        heads = self.answer_heads
        hidden_BTD = self.encode(inputs)
        cls_B = self.cls_positions(inputs)
        start_BT = heads.start_logits(hidden_BTD, context_BT.scatter(1, cls_B.unsqueeze(-1), True))
        start_B1 = (start_BT.argmax(1) if start_B is None else start_B).unsqueeze(-1)
        end_BT = heads.end_logits(hidden_BTD, start_B1, start_BT).squeeze(1)
        type_BC, number_BN, option_BO = heads.kind_logits(hidden_BTD, start_BT, cls_B)
        return XLNetOutput(start_BT, end_BT, type_BC, number_BN, option_BO, hidden_BTD)

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Each subject's end is conditioned on its own start."""
        output = self(inputs, context_BT)
        start_RS = candidate_BVSE[..., 0].flatten(0, 1)
        end_RST = self.answer_heads.end_logits(output.hidden_BTD, start_RS, output.start_BT)
        return candidate_log_probs(output.start_BT, end_RST, candidate_BVSE)

    def predict_answers(
        self, inputs: Inputs, context_BT: Tensor, start_allowed_BT: Tensor
    ) -> AnswerPrediction:
        """See `RationaleModel.predict_answers`."""
        output = self(inputs, context_BT)
        beam = min(BEAM, context_BT.shape[1])
        start_log_BK, start_BK = output.start_BT.log_softmax(-1).topk(beam)
        end_BKT = self.answer_heads.end_logits(output.hidden_BTD, start_BK, output.start_BT)
        end_log_BKE, end_BKE = end_BKT.log_softmax(-1).topk(beam)
        # The best allowed pair of a candidate start and one of its ends.
        start_BP = start_BK.repeat_interleave(beam, 1)
        end_BP = end_BKE.flatten(1)
        length_BP = end_BP - start_BP + 1
        allowed_BP = (length_BP >= 1) & (length_BP <= self.max_answer_tokens)
        allowed_BP &= (context_BT & start_allowed_BT).gather(1, start_BP)
        allowed_BP &= context_BT.gather(1, end_BP)
        score_BP = (start_log_BK.unsqueeze(-1) + end_log_BKE).flatten(1)
        score_B, best_B = score_BP.masked_fill(~allowed_BP, float("-inf")).max(-1)
        best_B1 = best_B.unsqueeze(-1)
        start_B, end_B = (at_BP.gather(1, best_B1).squeeze(-1) for at_BP in (start_BP, end_BP))
        others = list[Tensor]()
        for logits in (output.number_BN, output.option_BO):
            best = logits.softmax(-1)[:, 1:].max(-1)
            others += [best.indices + 1, best.values]
        return AnswerPrediction(start_B, end_B, score_B, output.type_BC.sigmoid(), *others)


class XLNetAnswerHeads(nn.Module):
    """Logits of the start, of the end given the start, and of the type of answer."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        D = hidden_size
        self.start = nn.Linear(D, 1)
        self.end_state = nn.Linear(2 * D, D)
        self.end_norm = nn.LayerNorm(D)
        self.end = nn.Linear(D, 1)
        self.answer_state = nn.Linear(2 * D, D)
        self.types = nn.Linear(D, TYPES)
        self.number = nn.Linear(D, NUMBERS)
        self.option = nn.Linear(D, OPTIONS)

    def start_logits(self, hidden_BTD: Tensor, allowed_BT: Tensor) -> Tensor:
        """Logits (B, T) of the first answer token, float32; the lowest finite number where not
        allowed.
        """
        return self.start(hidden_BTD).squeeze(-1).float().masked_fill(~allowed_BT, LOW)

    def end_logits(self, hidden_BTD: Tensor, start_BK: Tensor, start_BT: Tensor) -> Tensor:
        """Logits (B, K, T) of the last answer token given each of K first tokens, masked as
        `start_BT`, the logits of the first.
        """
        D = hidden_BTD.shape[-1]
        # One matrix product over tokens and one over starts, instead of one over their K * T pairs.
        of_token, of_start = self.end_state.weight.split(D, dim=1)
        token_B1TD = linear(hidden_BTD, of_token, self.end_state.bias).unsqueeze(1)
        start_BK1D = linear(states_at(hidden_BTD, start_BK), of_start).unsqueeze(2)
        end_BKT = self.end(self.end_norm((token_B1TD + start_BK1D).tanh())).squeeze(-1).float()
        return end_BKT.masked_fill(start_BT.unsqueeze(1) == LOW, LOW)

    def kind_logits(
        self, hidden_BTD: Tensor, start_BT: Tensor, cls_B: Tensor
    ) -> tuple[Tensor, ...]:
        """Float32 logits type_BC (three yes-or-no decisions), number_BN and option_BO (softmax
        each), from the state of `cls_B`, the classification token, and the mean state weighted by
        softmax(`start_BT`).
        """
        both = after_mean(hidden_BTD, cls_B, hidden_BTD, start_BT)
        answer_BD = self.answer_state(both).tanh()
        answer_BD = dropout(answer_BD, 0.1, self.training)
        return tuple(kind(answer_BD).float() for kind in (self.types, self.number, self.option))
