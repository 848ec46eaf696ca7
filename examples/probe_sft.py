"""TRL's SFTTrainer with LoRA: keep the checkpoint that answers and abstains best.

python examples/probe_sft.py MODEL OUTPUT
"""

import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

import interventune


def rows(source: str) -> Dataset:
    """Return questions with their answers, in the prompt format that the probe uses for
    decoders.
    """
    return Dataset.from_list(
        [
            {
                "prompt": f"Text: {q.context}\n\nQuestion: {q.question}\nAnswer:",
                "completion": f" {q.gold[0]}" if q.gold else " unknown",
            }
            for q in interventune.read_questions(source, limit=500)
        ]
    )


def main(
    name: str = "HuggingFaceTB/SmolLM2-135M", output: str = "runs/sft", steps: int = 300
) -> SFTTrainer:
    train, dev = "stories:conversation_train", "stories:conversation_dev"
    score = {"val/qa/f1": 0.5, "val/abstention/f1": 0.5}
    probe = interventune.TransformersProbe(
        dev, measures=["abstention", "shift"], limit=50, score=score
    )
    arguments = SFTConfig(
        output,
        max_steps=steps,
        eval_strategy="steps",
        eval_steps=steps // 3,
        save_strategy="steps",
        save_steps=steps // 3,
        load_best_model_at_end=True,
        metric_for_best_model="val/score",
        bf16=torch.cuda.is_available(),
    )
    trainer = SFTTrainer(
        name,
        arguments,
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
