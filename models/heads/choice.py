"""Multiple choice: an encoder reads (prompt, choice) pairs, and a linear layer gives each one
logit.

Shape letters: B batch (questions), N choices of a question, R rows (B * N), T tokens, D hidden.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from interventune.models.backbones import EncoderModel, Inputs

Pooling = Literal["masked", "parity"]


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
        """Logits (B, N) of the choices, float32; `inputs` as in `encode`, but each (B, N, T)."""
        B, N, _ = inputs["attention_mask"].shape
        rows = {name: value.flatten(0, 1) for name, value in inputs.items()}
        mask_RT = rows["attention_mask"]
        pooled_RD = masked_mean(
            self.encode(rows), mask_RT if self.pooling == "masked" else torch.ones_like(mask_RT)
        )
        # In bfloat16 two choices would often tie.
        with torch.autocast(pooled_RD.device.type, enabled=False):
            return self.choice_head(pooled_RD.to(self.choice_head.weight.dtype)).view(B, N).float()
