"""An answerer from a table, in place of a checkpoint."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from data_modules.schema import QAExample
from evaluation.answering.answerers import Said

Rule = Callable[[QAExample], str]
"""What is said to a question; a text that begins with ! is the reason of a failure."""


class FakeAnswerer:
    """Answers by a rule, in an order of its own."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.asked: list[QAExample] = []

    def said(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Said]:
        self.asked += examples
        for i in random.Random(0).sample(range(len(examples)), len(examples)):
            text = self.rule(examples[i])
            yield Said(i, "", text[1:]) if text.startswith("!") else Said(i, text)


def install(patch: pytest.MonkeyPatch, rules: dict[str, Rule]) -> dict[str, FakeAnswerer]:
    """Make `--checkpoint NAME` open the answerer of that name."""
    answerers = {name: FakeAnswerer(rule) for name, rule in rules.items()}

    def open_answerer(path: str, args: argparse.Namespace) -> FakeAnswerer:
        return answerers[path]

    patch.setattr("evaluation.answering.yes_no.open_answerer", open_answerer)
    return answerers


def right(example: QAExample) -> str:
    return example.answer_type.capitalize() + "."


def turned(example: QAExample) -> str:
    return "no" if example.answer_type == "yes" else "yes"
