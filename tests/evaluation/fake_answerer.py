"""An answerer from a table, in place of a checkpoint."""

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from interventune.data_modules.schema.questions import Answer, QAExample
from interventune.evaluation.answering.interface import Answerer, Asking

Rule = Callable[[QAExample], str]
"""What is said to a question; a text that begins with ! is the reason of a failure."""


class FakeAnswerer(Answerer):
    """Answers by a rule, in an order of its own."""

    path, identity = "fake", {"weights": "none"}

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.asked: list[QAExample] = []

    def answers(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Answer]:
        self.asked += examples
        for i in random.Random(0).sample(range(len(examples)), len(examples)):
            text = self.rule(examples[i])
            yield Answer(i, "", failure=text[1:]) if text.startswith("!") else Answer(i, text)


def install(patch: pytest.MonkeyPatch, rules: dict[str, Rule]) -> dict[str, FakeAnswerer]:
    """Make `--checkpoint NAME` open the answerer of that name."""
    answerers = {name: FakeAnswerer(rule) for name, rule in rules.items()}

    def open_answerer(path: str, asking: Asking, *, need: str = "spans") -> FakeAnswerer:
        return answerers[path]

    patch.setattr("interventune.evaluation.protocol.open_answerer", open_answerer)
    return answerers


def right(example: QAExample) -> str:
    return example.answer_type.capitalize() + "."


def turned(example: QAExample) -> str:
    return "no" if example.answer_type == "yes" else "yes"
