"""XLNet's heads and their model: span, answer type, number and option (Chaturvedi et al. 2023,
section 4.2; what the paper leaves open is as in the authors' code).

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), N number
classes, O option classes, K candidate starts, E candidate ends for each start, P all pairs of
both; in groups V variants, S subjects, and E the two boundaries.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from interventune.models.backbones import ARCHITECTURES, Inputs

from .answers import TYPES, AnswerPrediction, states_at
from .span import LOW, QAModel, candidate_log_probs

BEAM = 5
"""Number of candidate starts, and of candidate ends for each start (the authors' code)."""
NUMBERS = 12
"""0 = no number word, then none, one ... ten (the authors' code)."""
OPTIONS = 3
"""0 = no option, the word before "or", the word after it."""


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
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Float32 logits type_BC (three yes-or-no decisions), number_BN and option_BO (softmax
        each), from the state of `cls_B`, the classification token, and the mean state weighted by
        softmax(`start_BT`).
        """
        weight_B1T = start_BT.softmax(-1).to(hidden_BTD.dtype).unsqueeze(1)
        start_BD = (weight_B1T @ hidden_BTD).squeeze(1)
        cls_BD = states_at(hidden_BTD, cls_B.unsqueeze(-1)).squeeze(1).to(start_BD.dtype)
        answer_BD = self.answer_state(torch.cat((start_BD, cls_BD), dim=-1)).tanh()
        answer_BD = dropout(answer_BD, 0.1, self.training)
        type_BC, number_BN = self.types(answer_BD), self.number(answer_BD)
        return type_BC.float(), number_BN.float(), self.option(answer_BD).float()


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
    max_answer_tokens = 16  # as in the paper

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
        heads, hidden_BTD = self.answer_heads, self.encode(inputs)
        cls_B = self.cls_positions(inputs)
        start_BT = heads.start_logits(hidden_BTD, context_BT.scatter(1, cls_B.unsqueeze(-1), True))
        start_B1 = (start_BT.argmax(1) if start_B is None else start_B).unsqueeze(-1)
        end_BT = heads.end_logits(hidden_BTD, start_B1, start_BT).squeeze(1)
        kinds = heads.kind_logits(hidden_BTD, start_BT, cls_B)
        return XLNetOutput(start_BT, end_BT, *kinds, hidden_BTD)

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
        start_BP, end_BP = start_BK.repeat_interleave(beam, 1), end_BKE.flatten(1)
        length_BP = end_BP - start_BP + 1
        allowed_BP = (length_BP >= 1) & (length_BP <= self.max_answer_tokens)
        allowed_BP &= (context_BT & start_allowed_BT).gather(1, start_BP)
        allowed_BP &= context_BT.gather(1, end_BP)
        score_BP = (start_log_BK.unsqueeze(-1) + end_log_BKE).flatten(1)
        score_B, best_B = score_BP.masked_fill(~allowed_BP, float("-inf")).max(-1)
        best_B1 = best_B.unsqueeze(-1)
        spans = [at_BP.gather(1, best_B1).squeeze(-1) for at_BP in (start_BP, end_BP)]
        others = list[Tensor]()
        for logits in (output.number_BN, output.option_BO):
            best_B = logits.softmax(-1)[:, 1:].max(-1)
            others += [best_B.indices + 1, best_B.values]
        return AnswerPrediction(*spans, score_B, output.type_BC.sigmoid(), *others)
