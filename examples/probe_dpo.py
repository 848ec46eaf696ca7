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
    prompt, old = (
        "Text: {}\n\nQuestion: {}\nAnswer:",
        [one for one in deleted if one.gold != ("unknown",)],
    )
    rows = [(prompt.format(one.context, one.question), one.gold[0]) for one in old]
    return Dataset.from_list(
        [{"prompt": p, "chosen": " unknown", "rejected": f" {a}"} for p, a in rows]
    )


def main(
    name: str = "HuggingFaceTB/SmolLM2-135M", output: str = "runs/dpo", steps: int = 300
) -> DPOTrainer:
    train, dev = "stories:conversation_train", "stories:conversation_dev"
    score = {"val/qa/f1": 0.5, "val/abstention/f1": 0.5}
    probe = interventune.TransformersProbe("stories:heldout", dev, limit=50, score=score)
    often = {"eval_strategy": "steps", "eval_steps": steps // 3, "max_steps": steps}
    arguments = DPOConfig(output, bf16=torch.cuda.is_available(), **often)
    trainer = DPOTrainer(name, None, arguments, None, pairs(train), pairs(dev))
    probe.attach(trainer)
    trainer.train()
    print(probe.table.round(3).to_string())
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
