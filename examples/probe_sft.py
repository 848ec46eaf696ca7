"""TRL's SFTTrainer with LoRA: keep the checkpoint that answers and abstains best.

python examples/probe_sft.py MODEL OUTPUT
"""

import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

import interventune


def asked(source: str) -> Dataset:
    """Return questions with their answers, in the prompt format that the probe uses for
    decoders.
    """
    prompt, questions = (
        "Text: {}\n\nQuestion: {}\nAnswer:",
        interventune.read_questions(source, limit=500),
    )
    rows = [
        (prompt.format(one.context, one.question), (*one.gold, "unknown")[0]) for one in questions
    ]
    return Dataset.from_list(
        [{"prompt": text, "completion": f" {answer}"} for text, answer in rows]
    )


def main(
    name: str = "HuggingFaceTB/SmolLM2-135M", output: str = "runs/sft", steps: int = 300
) -> SFTTrainer:
    train, dev = "stories:conversation_train", "stories:conversation_dev"
    score = {"val/qa/f1": 0.5, "val/abstention/f1": 0.5}
    probe = interventune.TransformersProbe(
        dev, measures=["abstention", "shift"], limit=50, score=score
    )
    often = {f"{what}_strategy": "steps" for what in ("eval", "save")} | {"save_steps": steps // 3}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "val/score"}
    gpu = torch.cuda.is_available()
    arguments = SFTConfig(output, max_steps=steps, eval_steps=steps // 3, bf16=gpu, **often, **best)
    lora = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")
    data = asked(train), asked(dev)
    trainer = SFTTrainer(name, arguments, None, *data, peft_config=lora)
    probe.attach(trainer)
    trainer.train()
    print(probe.table.round(3).to_string())
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
