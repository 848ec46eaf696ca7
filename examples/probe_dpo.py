"""TRL's DPOTrainer: prefer "unknown" to the original answer where the evidence was deleted.

python examples/probe_dpo.py MODEL OUTPUT
"""

import sys

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

import interventune
from interventune.data_modules.interventions.variants import made_of


def pairs(source: str) -> Dataset:
    """Pair "unknown" with the original answer, for each story whose evidence was deleted."""
    deleted, _ = made_of(interventune.read_questions(source, limit=500), "ts_r")
    return Dataset.from_list(
        [
            {
                "prompt": f"Text: {q.context}\n\nQuestion: {q.question}\nAnswer:",
                "chosen": " unknown",
                "rejected": f" {q.gold[0]}",
            }
            for q in deleted
            if q.gold != ("unknown",)
        ]
    )


def main(
    name: str = "HuggingFaceTB/SmolLM2-135M", output: str = "runs/dpo", steps: int = 300
) -> DPOTrainer:
    train, dev = "stories:conversation_train", "stories:conversation_dev"
    score = {"val/qa/f1": 0.5, "val/abstention/f1": 0.5}
    probe = interventune.TransformersProbe("stories:heldout", dev, limit=50, score=score)
    arguments = DPOConfig(
        output,
        max_steps=steps,
        eval_strategy="steps",
        eval_steps=steps // 3,
        bf16=torch.cuda.is_available(),
    )
    trainer = DPOTrainer(
        name,
        args=arguments,
        train_dataset=pairs(train),
        eval_dataset=pairs(dev),
    )
    probe.attach(trainer)
    trainer.train()
    print(probe.table.round(3).to_string())
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
