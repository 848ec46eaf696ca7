"""Lightning: a decoder in your own module, and the checkpoint with the best probe.

python examples/probe_lightning.py MODEL OUTPUT
"""

import sys

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from transformers import AutoModelForCausalLM, AutoTokenizer

import interventune


class Tuning(pl.LightningModule):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name).train()
        self.tokenizer = AutoTokenizer.from_pretrained(name)

    def training_step(self, texts: list[str], batch_idx: int) -> torch.Tensor:
        rows = self.tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        rows = rows.to(self.device)
        labels = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, -100)
        return self.model(**rows, labels=labels).loss

    def validation_step(self, texts: list[str], batch_idx: int) -> None:
        self.log("val/loss", self.training_step(texts, batch_idx), batch_size=len(texts))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main(
    name: str = "HuggingFaceTB/SmolLM2-135M", output: str = "runs/pl", epochs: int = 3
) -> pl.Trainer:
    questions = interventune.read_questions("stories:train", limit=500)
    texts = [f"Text: {q.context}\n\nQuestion: {q.question}\nAnswer: {q.gold[0]}" for q in questions]
    train, dev = (torch.utils.data.DataLoader(part, 16) for part in (texts[10:], texts[:10]))
    probe = interventune.LightningProbe(
        "stories:heldout", "stories:dev", limit=50, score={"val/qa/f1": 1.0}
    )
    best = ModelCheckpoint(monitor="val/score", mode="max")
    trainer = pl.Trainer(default_root_dir=output, max_epochs=epochs, callbacks=[probe, best])
    trainer.fit(Tuning(name), train, dev)
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
