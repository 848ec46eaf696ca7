"""Transformers' Trainer: a span model, and the checkpoint with the best probe.

python examples/probe_trainer.py MODEL OUTPUT
"""

import sys

from transformers import AutoModelForQuestionAnswering, AutoTokenizer, Trainer, TrainingArguments

import interventune


def main(name: str = "roberta-base", output: str = "runs/qa", steps: int = 300) -> Trainer:
    tokenizer = AutoTokenizer.from_pretrained(name)

    def encoded(question):
        row = tokenizer(question.question, question.context, padding="max_length", max_length=160)
        answer = question.answers[0]
        start = row.char_to_token(0, answer.start, sequence_index=1)
        end = row.char_to_token(0, answer.end - 1, sequence_index=1)
        return {**row, "start_positions": start, "end_positions": end}

    train, held_out = (
        [encoded(question) for question in interventune.read_questions(source, limit=500)]
        for source in ("stories:train", "stories:dev")
    )
    score = {"val/qa/f1": 1.0, "val/bias/ethical/mu": -0.5}
    probe = interventune.TransformersProbe("stories:heldout", "stories:dev", limit=50, score=score)
    arguments = TrainingArguments(
        output,
        max_steps=steps,
        eval_strategy="steps",
        eval_steps=steps // 3,
        save_steps=steps // 3,
        load_best_model_at_end=True,
        metric_for_best_model="val/score",
    )
    trainer = Trainer(
        AutoModelForQuestionAnswering.from_pretrained(name),
        arguments,
        train_dataset=train,
        eval_dataset=held_out,
        processing_class=tokenizer,
    )
    probe.attach(trainer)
    trainer.train()
    print(probe.table.round(3).to_string())
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
