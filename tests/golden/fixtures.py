"""Small input files in public formats, made of plain Python; no project code, nothing drawn at random."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Karin", "Leo"]
SITES = [
    "kitchen",
    "garden",
    "library",
    "office",
    "attic",
    "cellar",
    "stable",
    "chapel",
    "bakery",
    "harbour",
]
THINGS = ["ball", "cup", "book", "coat", "lamp", "drum", "kite", "basket"]
COLOURS = ["red", "blue", "green", "yellow", "black", "white", "purple", "brown"]
NUMBERS = ["two", "three", "four", "five", "six"]
STORIES = 10


class Facts:
    """A story of five sentences about three people; `i` alone decides what it tells."""

    def __init__(self, i: int) -> None:
        self.a, self.b, self.c = (NAMES[(3 * i + k) % len(NAMES)] for k in range(3))
        self.here, self.there = SITES[i % 10], SITES[(i + 4) % 10]
        self.thing, self.colour, self.other = THINGS[i % 8], COLOURS[i % 8], COLOURS[(i + 3) % 8]
        self.number = NUMBERS[i % 5]
        self.sentences = (
            f"{self.a}, {self.b} and {self.c} met at the lake.",
            f"{self.a} is in the {self.here}.",
            f"{self.b} has a {self.colour} {self.thing}.",
            f"{self.c} slept in the {self.there} for {self.number} days.",
            f"Nobody but {self.a} was in a hurry, and {self.a} came back late.",
        )
        self.text = " ".join(self.sentences)

    def questions(self, i: int) -> list[tuple[str, str, int]]:
        """(question, answer, number of the sentence that says so; -1: none does)."""
        asked = self.colour if i % 2 else self.other
        return [
            (f"Where is {self.a}?", f"In the {self.here}" if i % 3 else self.here, 1),
            (f"Does {self.b} have a {asked} {self.thing}?", "Yes." if i % 2 else "no", 2),
            (f"Is the {self.thing} {self.other} or {self.colour}?", self.colour, 2),
            (f"How many days did {self.c} sleep in the {self.there}?", self.number, 3),
            (f"How old is {self.c}?", "unknown", -1),
        ]


def coqa() -> dict[str, Any]:
    """Fifty questions in CoQA's layout, with every kind of answer."""
    stories = []
    for i in range(STORIES):
        facts, questions, answers = Facts(i), [], []
        for turn, (question, answer, sentence) in enumerate(facts.questions(i), 1):
            rationale = facts.sentences[sentence] if sentence >= 0 else "unknown"
            start = facts.text.index(rationale) if sentence >= 0 else -1
            end = start + len(rationale) if sentence >= 0 else -1
            questions.append({"input_text": question, "turn_id": turn})
            span = {"span_start": start, "span_end": end, "span_text": rationale}
            answers.append({"input_text": answer, "turn_id": turn, **span})
        story = {"source": ("mctest", "race")[i % 2], "id": f"s{i}", "filename": f"f{i}", "story": facts.text}
        stories.append({**story, "questions": questions, "answers": answers})
    return {"version": "1.0", "data": stories}


def hotpotqa() -> list[dict[str, Any]]:
    """Fifty questions in HotpotQA's layout: two gold paragraphs of two stories, and one beside them."""
    records = []
    for i in range(STORIES):
        one, two, beside = Facts(i), Facts((i + 1) % STORIES), Facts((i + 5) % STORIES)
        paragraphs = [
            [f"Tale {k}", [f"{text} " for text in facts.sentences]]
            for k, facts in ((0, one), (1, beside), (2, two))
        ]
        for k, (question, answer, sentence) in enumerate(one.questions(i)[:4] + two.questions(i + 1)[:1]):
            facts = [["Tale 0", sentence], ["Tale 2", 0]] if k < 4 else [["Tale 2", 1], ["Tale 0", 4]]
            kind = "comparison" if k == 1 else "bridge"
            record = {"_id": f"h{i}-{k}", "question": question, "answer": answer.strip("."), "type": kind}
            records.append({**record, "level": "easy", "supporting_facts": facts, "context": paragraphs})
    return records


def choices(benchmark: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Thirteen questions of a benchmark, and their labels as its own files write them."""
    rows, labels = [], []
    for i in range(13):
        facts = Facts(i)
        said = [f"{facts.a} is in the {place}." for place in (facts.here, facts.there, "lake", "tale")]
        count, first = {"piqa": (2, 0), "anli": (2, 1), "socialiqa": (3, 1), "hellaswag": (4, 0)}[benchmark]
        right = i % count
        said = said[1:count][:right] + said[:1] + said[1:count][right:]
        around = {"obs1": facts.sentences[0], "obs2": facts.sentences[4]}
        row: dict[str, Any] = {
            "piqa": {"goal": facts.text},
            "anli": {"story_id": f"n{i}", **around},
            "socialiqa": {"context": facts.text, "question": f"Where is {facts.a}?"},
            "hellaswag": {"ctx_a": facts.text, "ctx_b": "Therefore", "endings": said},
        }[benchmark]
        names = {
            "piqa": ("sol1", "sol2"),
            "anli": ("hyp1", "hyp2"),
            "socialiqa": ("answerA", "answerB", "answerC"),
        }
        rows.append(row | dict(zip(names.get(benchmark, ()), said, strict=False)))
        labels.append(first + right)
    return rows, labels


def condaqa() -> list[dict[str, Any]]:
    """Edited passages in CondaQA's layout: some turn the answer, some do not."""
    labels = (("YES", "YES", "NO", "YES"), ("NO", "NO", "YES", "YES"), ("YES", "YES", "YES", "DON'T KNOW"))
    rows = []
    for i in range(6):
        facts = Facts(i)
        for edit, label in enumerate(labels[i % 3]):
            said = facts.sentences[1] if edit in (0, 1) else f"{facts.a} is not in the {facts.here}."
            passage = " ".join((facts.sentences[0], said, *facts.sentences[2 + edit % 2 :]))
            rows.append(
                {"PassageID": i // 2, "QuestionID": f"q{i}", "PassageEditID": edit, "label": label}
                | {"sentence1": passage, "sentence2": f"Is {facts.a} in the {facts.here}?"}
            )
    return rows


def pairs() -> list[dict[str, Any]]:
    """Stories that answer one question in opposite ways."""
    rows = []
    for i in range(12):
        facts = Facts(i)
        row = {"id": f"p{i}", "dataset": "coqa", "edit": ("scope", "affirmative")[i % 2], "turn_id": i}
        row |= {
            "question": f"Is {facts.a} in the {facts.here}?",
            "history": [["Who met?", facts.a]] * (i % 2),
        }
        negated = facts.text.replace(f"{facts.a} is in", f"{facts.a} is not in")
        yes, no = ("yes", "no") if i % 3 else ("no", "yes")
        stories = (facts.text, negated) if i % 3 else (negated, facts.text)
        row |= {"story_org": stories[0], "story_mod": stories[1], "answer_org": yes, "answer_mod": no}
        rows.append(row)
    return rows


def labelled() -> list[dict[str, Any]]:
    """Texts with a label, half of them in upper case whatever the label."""
    rows = []
    for i in range(64):
        facts = Facts(i // 4)
        text = f"{facts.a} has a {'good' if i % 2 else 'bad'} {facts.thing} in the {facts.here} {i // 4}"
        rows.append({"text": text.upper() if i % 4 < 2 else text, "label": i % 2})
    return rows


def toxicity() -> list[dict[str, Any]]:
    """Texts labelled with the attributes that a scorer learns."""
    words = {"toxicity": "red", "threat": "dog", "profanity": "ran", "severe_toxicity": "who"}
    words |= {"sexually_explicit": "under", "identity_attack": "blue"}
    plain = ("the", "a", "cat", "sat", "on", "mat", "where", "is")
    rows = []
    for i in range(120):
        text = [plain[(i * k + k) % len(plain)] for k in range(1, 7)]
        labels = {name: 0.9 * ((i // (k + 2)) % 3 == 0) for k, name in enumerate(words)}
        text += [words[name] for name, label in labels.items() if label]
        rows.append({"text": " ".join(text), **labels})
    return rows


PROMPTS = {
    "adversarial": [
        "the red dog",
        "the cat ran under the dog",
        "who is not red",
        "a blue dog sat on the mat",
    ],
    "neutral": ["the cat sat", "a", "where is the mat ?"],
}


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_fixtures(folder: Path) -> None:
    """All files that the goldens read."""
    folder.mkdir()
    for name, content in (("coqa", coqa()), ("hotpotqa", hotpotqa())):
        write_json(folder / f"{name}.json", content)
    for name, rows in (("condaqa", condaqa()), ("pairs", pairs()), ("labelled", labelled())):
        write_lines(folder / f"{name}.jsonl", rows)
    write_lines(folder / "toxicity.jsonl", toxicity())
    for benchmark in ("piqa", "anli", "socialiqa", "hellaswag"):
        records, labels = choices(benchmark)
        write_lines(folder / f"{benchmark}.jsonl", records)
        write_lines(folder / f"{benchmark}.lst", labels)
    for name, texts in PROMPTS.items():
        write_lines(folder / f"{name}.jsonl", ({"prompt": {"text": text}} for text in texts))
