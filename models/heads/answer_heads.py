"""Heads that answer yes, no or unknown beside a span: the papers' rationale tagging, and XLNet's.

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), K starts looked at,
N number classes, O option classes.
"""

from __future__ import annotations

import logging
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

log = logging.getLogger(__name__)

ClsSource = Literal["hidden", "pooler"]

TYPES = 3
"""yes, no, unknown."""
NUMBERS = 12
"""0 = no number word, then none, one ... ten (faithfulness spec 1.4)."""
OPTIONS = 3
"""0 = no option, the word before "or", the word after it."""
LOW = torch.finfo(torch.float32).min


def states_at(hidden_BTD: Tensor, at_BK: Tensor) -> Tensor:
    """Hidden states (B, K, D) at given tokens."""
    return hidden_BTD.gather(1, at_BK.unsqueeze(-1).expand(-1, -1, hidden_BTD.shape[-1]))


class RationaleHeads(nn.Module):
    """Tags the rationale and decides between yes, no and unknown by attention over the tagged states.

    Source: the semantic faithfulness paper's model for BERT and RoBERTa (faithfulness spec 2.1). No biases.

    Args:
        hidden_size: of the encoder.
        initializer_range: Standard deviation of fresh weights.
        cls_source: The state that stands for the whole row: `hidden`, the classification token's last hidden
            state, as in the paper's equation; `pooler`, tanh(W h + b) of it, as in the authors' code.
    """

    def __init__(
        self, hidden_size: int, *, initializer_range: float = 0.02, cls_source: ClsSource = "hidden"
    ) -> None:
        super().__init__()
        D = hidden_size
        self.rationale = nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, 1, bias=False))
        self.attention = nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, 1, bias=False))
        self.unknown = nn.Linear(2 * D, 1, bias=False)
        self.yes_no = nn.Linear(2 * D, 2, bias=False)
        self.pooler = nn.Linear(D, D) if cls_source == "pooler" else None
        normal_(self, initializer_range)

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, cls_B: Tensor) -> tuple[Tensor, Tensor]:
        """Score the answer types and tag the rationale.

        Args:
            hidden_BTD: last hidden states.
            mask_BT: 0 at padding.
            cls_B: where the classification token stands.

        Returns:
            type_BC, logits of yes, no, unknown, and rationale_BT, logits of being part of the rationale with
            the lowest finite number at padding; both float32.
        """
        padding_BT = mask_BT == 0
        rationale_BT = self.rationale(hidden_BTD).squeeze(-1).float().masked_fill(padding_BT, LOW)
        tagged_BTD = rationale_BT.sigmoid().to(hidden_BTD.dtype).unsqueeze(-1) * hidden_BTD
        attention_BT = self.attention(tagged_BTD).squeeze(-1).float().masked_fill(padding_BT, LOW).softmax(-1)
        pooled_BD = (attention_BT.to(tagged_BTD.dtype).unsqueeze(1) @ tagged_BTD).squeeze(1)
        cls_BD = states_at(hidden_BTD, cls_B.unsqueeze(-1)).squeeze(1)
        if self.pooler is not None:
            cls_BD = self.pooler(cls_BD).tanh()
        both = torch.cat((pooled_BD, cls_BD.to(pooled_BD.dtype)), dim=-1)
        return torch.cat((self.yes_no(both), self.unknown(both)), dim=-1).float(), rationale_BT

    def take_pooler(self, checkpoint: str) -> None:
        """Start the pooler, if there is one, from a pretrained encoder's, which question-answering classes of
        transformers leave out. Where the encoder has none it stays random."""
        if self.pooler is None:
            return
        from transformers import AutoModel

        encoder, info = AutoModel.from_pretrained(checkpoint, output_loading_info=True)
        dense = getattr(getattr(encoder, "pooler", None), "dense", None)
        if isinstance(dense, nn.Linear) and not any("pooler" in key for key in info["missing_keys"]):
            self.pooler.load_state_dict(dense.state_dict())
        else:
            log.info("%s: has no pooler; that of the answer heads starts random", checkpoint)


class XLNetAnswerHeads(nn.Module):
    """Start, end given the start, and five outputs of what kind the answer is.

    Source: the model that the semantic faithfulness paper takes for XLNet (faithfulness spec 2.3).

    Args:
        hidden_size: of the encoder.
        initializer_range: Standard deviation of fresh weights; biases start at 0.
        dropout: Of the answer vector.
    """

    def __init__(self, hidden_size: int, *, initializer_range: float = 0.02, dropout: float = 0.1) -> None:
        super().__init__()
        D = hidden_size
        self.start = nn.Linear(D, 1)
        self.end_state = nn.Linear(2 * D, D)
        self.end_norm = nn.LayerNorm(D)
        self.end = nn.Linear(D, 1)
        self.answer_state = nn.Linear(2 * D, D)
        self.dropout = nn.Dropout(dropout)
        self.types = nn.Linear(D, TYPES)
        self.number = nn.Linear(D, NUMBERS)
        self.option = nn.Linear(D, OPTIONS)
        normal_(self, initializer_range)

    def start_logits(self, hidden_BTD: Tensor, allowed_BT: Tensor) -> Tensor:
        """Logits (B, T) of the first answer token, float32, lowest finite number where not allowed."""
        return self.start(hidden_BTD).squeeze(-1).float().masked_fill(~allowed_BT, LOW)

    def end_logits(self, hidden_BTD: Tensor, start_BK: Tensor, allowed_BT: Tensor) -> Tensor:
        """Logits (B, K, T) of the last answer token given each of K first tokens, likewise."""
        D = hidden_BTD.shape[-1]
        # One matrix product over tokens and one over starts, instead of one over their K * T pairs.
        of_token, of_start = self.end_state.weight.split(D, dim=1)
        token_B1TD = linear(hidden_BTD, of_token, self.end_state.bias).unsqueeze(1)
        start_BK1D = linear(states_at(hidden_BTD, start_BK), of_start).unsqueeze(2)
        end_BKT = self.end(self.end_norm((token_B1TD + start_BK1D).tanh())).squeeze(-1).float()
        return end_BKT.masked_fill(~allowed_BT.unsqueeze(1), LOW)

    def kind_logits(
        self, hidden_BTD: Tensor, start_BT: Tensor, cls_B: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Float32 logits type_BC (three yes-or-no decisions), number_BN and option_BO (softmax each).

        Args:
            hidden_BTD: last hidden states.
            start_BT: masked start logits; the states are averaged by their softmax.
            cls_B: where the classification token stands.
        """
        weight_B1T = start_BT.softmax(-1).to(hidden_BTD.dtype).unsqueeze(1)
        start_BD = (weight_B1T @ hidden_BTD).squeeze(1)
        cls_BD = states_at(hidden_BTD, cls_B.unsqueeze(-1)).squeeze(1).to(start_BD.dtype)
        answer_BD = self.dropout(self.answer_state(torch.cat((start_BD, cls_BD), dim=-1)).tanh())
        return self.types(answer_BD).float(), self.number(answer_BD).float(), self.option(answer_BD).float()


@torch.no_grad()
def normal_(module: nn.Module, std: float) -> None:
    """Draw every linear layer's weights from N(0, std^2), in place; biases become 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
