"""TRL's SFTTrainer or DPOTrainer with LoRA: keep the checkpoint that answers and abstains best.

python examples/probe_trl.py sft MODEL OUTPUT      (or dpo)
"""

import sys
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

import interventune
from interventune.data_modules.interventions.variants import made_of

PROMPT = "Text: {0.context}\n\nQuestion: {0.question}\nAnswer:"
"""The format that the probe uses for decoders."""


def answers(source: str) -> Dataset:
    """Return questions with their answers."""
    questions = interventune.read_questions(source, limit=500)
    return Dataset.from_list(
        [
            {"prompt": PROMPT.format(q), "completion": f" {q.gold[0]}" if q.gold else " unknown"}
            for q in questions
        ]
    )


def preferences(source: str) -> Dataset:
    """Prefer "unknown" to the original answer, for each story whose evidence was deleted."""
    deleted, _ = made_of(interventune.read_questions(source, limit=500), "ts_r")
    return Dataset.from_list(
        [
            {"prompt": PROMPT.format(q), "chosen": " unknown", "rejected": f" {q.gold[0]}"}
            for q in deleted
            if q.gold != ("unknown",)
        ]
    )


KINDS = {"sft": (SFTTrainer, SFTConfig, answers), "dpo": (DPOTrainer, DPOConfig, preferences)}


def main(
    kind: str = "sft",
    name: str = "HuggingFaceTB/SmolLM2-135M",
    output: str = "runs/trl",
    steps: int = 300,
) -> Any:
    trainer_class, config, rows = KINDS[kind]
    train = "stories:conversation_train"
    dev = "stories:conversation_dev"
    score = {"val/qa/f1": 0.5, "val/abstention/f1": 0.5}
    probe = interventune.TransformersProbe(
        dev, measures=["abstention", "shift"], limit=50, score=score
    )
    arguments = config(
        output,
        max_steps=steps,
        eval_strategy="steps",
        eval_steps=steps // 3,
        save_steps=steps // 3,
        load_best_model_at_end=True,
        metric_for_best_model="val/score",
        bf16=torch.cuda.is_available(),
    )
    trainer = trainer_class(
        name,
        args=arguments,
        train_dataset=rows(train),
        eval_dataset=rows(dev),
        peft_config=LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    probe.attach(trainer)
    trainer.train()
    print(probe.table.round(3).to_string())
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
