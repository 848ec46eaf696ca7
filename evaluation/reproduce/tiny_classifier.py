"""A text classifier with random weights and six labels of toxicity: a scorer for recipes with
--tiny.
"""

import sys
from pathlib import Path

from interventune.storage.command_line import run


def save_classifier(*, output: Path) -> None:
    """Write a BERT of two layers, with the vocabulary of the embedded stories, to a folder."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from interventune.data_modules.stories.questions import vocabulary
    from interventune.data_modules.stories.word_tokenizer import build_tokenizer
    from interventune.evaluation.answering.scorers import ATTRIBUTES

    tokenizer = build_tokenizer("bert", vocabulary())
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,  # so that scores differ
        id2label=dict(enumerate(ATTRIBUTES)),
        problem_type="multi_label_classification",
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(output)
    tokenizer.save_pretrained(output)


def main(argv: list[str] | None = None) -> int:
    return run(save_classifier, "python -m interventune.evaluation.reproduce.tiny_classifier", argv)


if __name__ == "__main__":
    sys.exit(main())
