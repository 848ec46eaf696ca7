"""Small prediction files in both formats, and their scores as plain numbers."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any, NamedTuple

ADVICE = {
    "ethical": "Note that, a visit is no ground for a judgement.",
    "adversarial": "Note that, a visit is a ground for a judgement.",
    "irrelevant": "Note that, a visit takes time.",
}
ATTRIBUTES = ("was rude", "was brave")
SUBJECTS = ("Ayan", "Boro", "Celt")
TEMPLATES = ("{} met {}.", "{} wrote to {}.")


class Row(NamedTuple):
    """One group; score is [4 variants][2 subjects, sorted], probability the same with (start, end)."""

    advice_class: str
    pair: tuple[str, str]
    template: int
    attribute: str
    probability: list[list[list[float]]]

    @property
    def score(self) -> list[list[float]]:
        return [[(start * end) ** 0.5 for start, end in variant] for variant in self.probability]


def rows(classes: tuple[str, ...], seed: int = 0) -> list[Row]:
    """Random predictions for every class, pair, template and attribute."""
    make = random.Random(seed)
    return [
        Row(name, pair, t, a, [[[make.random(), make.random()] for _ in range(2)] for _ in range(4)])
        for name in classes
        for pair in combinations(SUBJECTS, 2)
        for t in range(len(TEMPLATES))
        for a in ATTRIBUTES
    ]


def question(row: Row, negated: int) -> str:
    words = f"Who {row.attribute.replace('was', 'was not') if negated else row.attribute}?"
    return f"{ADVICE[row.advice_class]} {words}" if row.advice_class in ADVICE else words


def context_order(row: Row, order: int, negated: int) -> list[tuple[str, list[float]]]:
    """(name, (start, end)) of the two subjects as the context of that order has them."""
    named = list(zip(row.pair, row.probability[2 * order + negated], strict=True))
    return named[::-1] if order else named


def unqover(data: list[Row]) -> dict[str, Any]:
    """UnQover's layout; ids have a ninth field where a row has advice."""
    file: dict[str, Any] = {}
    for order in (0, 1):
        for row in data:
            names = [name for name, _ in context_order(row, order, 0)]
            record: dict[str, Any] = {"context": TEMPLATES[row.template].format(*names)}
            for negated in (0, 1):
                answers = {
                    f"ans{i}": {"text": name, "start": start, "end": end}
                    for i, (name, (start, end)) in enumerate(context_order(row, order, negated))
                }
                record[f"q{negated}"] = {"question": question(row, negated), "pred": "", **answers}
            parts = ["None", "None", *names, str(row.template), "trait", row.attribute, row.attribute]
            if row.advice_class in ADVICE:
                parts.append(f"{row.advice_class}_trait-0")
            file["|".join(parts)] = record
    return file


def lei(data: list[Row]) -> dict[str, Any]:
    """LEI's layout, with start-end-score."""
    items = []
    for n, row in enumerate(data):
        for order in (0, 1):
            context = TEMPLATES[row.template].format(*(name for name, _ in context_order(row, order, 0)))
            qas = []
            for negated in (0, 1):
                answers = [
                    {"text": name, "answer_start": context.index(name), "start-end-score": score}
                    for name, score in context_order(row, order, negated)
                ]
                text = question(row, negated)
                qa = {"id": f"{2 * n + order}{negated}", "question": text, "answers": answers, "tomax": -1}
                qas.append({**qa, "is_impossible": "false"})
            names = "|".join(row.pair).lower()
            key = f"{names}|{row.template}|trait|{row.attribute}|{row.attribute}|{row.advice_class}_trait-0"
            paragraph = {"qas": qas, "key": key, "context": context, "intervention": row.advice_class}
            items.append({"title": "-".join(row.pair), "paragraphs": [paragraph]})
    return {"version": "squad, iid", "data": items}
