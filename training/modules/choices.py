"""Fine-tune a model of multiple choice.

Shape letters: B batch (questions), N choices of a question.
"""

from typing import Any

from jsonargparse.typing import NonNegativeFloat
from torch import Tensor

from interventune.data_modules.batching.candidates import ChoiceBatch
from interventune.data_modules.choices_data import ChoicesDataModule
from interventune.losses.answers import Losses, choice_cross_entropy, choice_loss
from interventune.models.backbones import Backbone
from interventune.models.heads.causal import CausalModel
from interventune.models.heads.span import ChoiceModel, Pooling
from interventune.models.loading import start

from .fine_tuning import FineTuning


class ChoiceModule(FineTuning):
    """Multiple choice: cross-entropy over the choices of a question.

    A decoder has no head: a choice's score is the mean log-likelihood of its tokens after the
    prompt, as in `evaluate bbq` and `evaluate confusion`.

    Args:
        backbone: Architecture and starting weights; set by the top-level `backbone`. A `.ckpt`
            gives its encoder, and its head if it was trained for multiple choice.
        learning_rate: Highest learning rate; the authors' for RoBERTa-large is 2e-6.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed. The
            authors' is 0.
        pooling: What the head reads: the mean of the tokens' hidden states (`masked`), or of all
            positions with padding, as in the authors' code (`parity`; needs
            data.encoding.padding=parity).
        gap_weight: For BBQ's ambiguous questions, whose label is unknown: weight of the additional
            loss |log p(x1) - log p(x2)| of the two people.
        options: as for FineTuning.

    Source: the authors' code of Shen and Kejriwal 2022.
    """

    model: ChoiceModel | CausalModel

    def __init__(
        self,
        *,
        backbone: Backbone,
        learning_rate: NonNegativeFloat = 2e-5,
        weight_decay: NonNegativeFloat = 0.01,
        pooling: Pooling = "masked",
        gap_weight: NonNegativeFloat = 0.0,
        **options: Any,
    ) -> None:
        model: Any = (
            start(backbone, CausalModel)
            if backbone.causal
            else start(backbone, ChoiceModel, pooling=pooling)
        )
        super().__init__(model, learning_rate=learning_rate, weight_decay=weight_decay, **options)
        self.gap_weight = gap_weight

    @property
    def encoding(self) -> Any:
        """Options of text encoding. A decoder's checkpoint stores them in the form common to all
        decoders, so that every protocol can evaluate it.
        """
        own = self.datamodule.encoding
        is_encoder = isinstance(self.model, ChoiceModel)
        return own if is_encoder else own.of_decoder(self.model.architecture)

    def check_data(self, stage: str) -> None:
        """ValueError for data without choices, and for padding that does not fit the pooling."""
        if not isinstance(self.datamodule, ChoicesDataModule):
            raise ValueError(
                "data: ChoiceModule needs ChoicesDataModule (experiment multiple_choice)"
            )
        parity = isinstance(self.model, ChoiceModel) and self.model.pooling == "parity"
        if parity and self.encoding.padding != "parity":
            raise ValueError(
                "model.pooling=parity counts padding in: it needs data.encoding.padding=parity"
            )

    def logits(self, batch: ChoiceBatch) -> Tensor:
        """Return one logit per choice, (B, N) float32."""
        if isinstance(self.model, ChoiceModel):
            logits_BN: Tensor = self.model(batch.inputs)
            return logits_BN
        assert batch.candidate_BCE is not None
        rows = {name: value.squeeze(1) for name, value in batch.inputs.items()}
        return self.model.log_shares(rows, batch.candidate_BCE)

    def losses(self, batch: ChoiceBatch) -> Losses:
        loss = choice_loss(
            self.logits(batch), batch.label_B, batch.unknown_B, gap_weight=self.gap_weight
        )
        return {"choices": loss}

    def validation_step(
        self, batch: ChoiceBatch, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Return logits (B, N) and losses (B,) for the callbacks."""
        logits_BN = self.logits(batch)
        return {"logits_BN": logits_BN, "loss_B": choice_cross_entropy(logits_BN, batch.label_B)}
