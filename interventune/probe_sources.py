"""What a probe asks: groups about bias, questions about answers, abstention and embedding shift.

Shape letters: B rows, T tokens, D hidden.
"""

import logging
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

import pandas as pd
import torch

from .data_modules.schema.groups import ADVICE_CLASSES
from .data_modules.schema.questions import DELETED, QAExample, Variant
from .evaluation.answering.checkpoint import QuestionCheckpoint
from .evaluation.answering.work import current
from .evaluation.protocols.bias.groups import read_sets, with_scores
from .evaluation.protocols.bias.measures import (
    STATISTICS,
    compare,
    of_maxima,
    of_statistic,
    table,
    with_units,
)
from .evaluation.protocols.faithfulness.abstention import ABSTENTION, counted_rows
from .evaluation.protocols.faithfulness.command import FAITHFULNESS, scores
from .evaluation.protocols.shift import SHIFT, between, measured, originals_by_id
from .evaluation.results import Number, Row, plain
from .evaluation.variants import VariantOptions, passage, read_stories
from .storage.documents import DataError

log = logging.getLogger(__name__)

Measure = Literal["bias", "qa", "abstention", "shift"]
Snapshot = dict[str, Any]
"""What a source found at one time, as plain values and tensors; empty if it is lost."""
QA = replace(
    FAITHFULNESS,
    cells=[("variant",)],
    measures={"f1": "F1", "em": "EM", "unknown": "unknown"},
    failures="",
)
COSINES = replace(SHIFT, cells=SHIFT.cells[:1], measures={"mean": SHIFT.measures["cosine"]})
EMBEDDINGS = {"cls": "cls", "common": "tokens"}
"""Names of the embeddings of `shift` in keys."""
START = "start"
NOW = "now"
UNKNOWN = torch.tensor(math.nan)
"""The states of a row that the start did not see."""
Numbers = Iterator[tuple[str, Number]]
"""Numbers with their keys; in their places, snapshots are checkpoints."""


class Groups:
    """A source of groups."""

    gives = frozenset[Measure]({"bias"})

    def __init__(self, name: str, source: str, limit: int, _: object) -> None:
        self.name = name
        sets, self.rows = read_sets({"": source}, limit)
        self.content = sets[""]

    def ask(self, model: QuestionCheckpoint, _: object) -> Snapshot:
        """Return the scores of the groups."""
        return {"bias": model.subject_scores(self.content, "probing bias")}

    def numbers(self, snapshots: Mapping[str, Snapshot]) -> Numbers:
        """Yield the numbers of snapshots; others are compared with START."""
        names = [name for name, snapshot in snapshots.items() if snapshot]
        rows = [
            {"checkpoint": name, **row}
            for name in names
            for row in with_scores(self.rows, snapshots[name]["bias"])
        ]
        groups = with_units(table(pd.DataFrame(rows)))
        for advice in ADVICE_CLASSES:
            members = groups[groups["class"] == advice]
            pairs = [*compare(members, names, {"class": advice})]
            means = (of_statistic(pairs, name, STATISTICS[name]) for name in ("mean_abs_c", "mass"))
            for number in chain(of_maxima(pairs, ["mu"]), *means):
                yield f"val/bias/{self.name}{advice}/{number.measure}", number


class Questions:
    """A source of questions about stories, evaluated on the original and without the evidence."""

    gives = frozenset[Measure]({"qa", "abstention", "shift"})

    def __init__(
        self, name: str, source: str, limit: int, measures: Sequence[Measure] | None
    ) -> None:
        self.name = name
        self.measures = self.gives & {*(measures or self.gives)}
        try:
            variants: list[Variant] | None = None if self.measures - {"qa"} else ["os"]
            stories = read_stories(VariantOptions([source], variants, limit))
        except DataError as error:  # perhaps only the deletion is impossible
            stories = read_stories(VariantOptions([source], ["os"], limit))
            if measures and ("shift" in measures or not some_unanswerable(stories.originals)):
                raise
            log.warning("%s; the probe measures what needs no such variant", error)
        if not stories.originals:
            raise DataError(
                f"{source}: holds no original stories, which variants are compared with"
            )
        self.originals = originals_by_id(stories)
        self.content = {
            variant: rows
            for variant, rows in stories.examples.items()
            if variant in {"os", *DELETED}
        }

    def ask(self, model: QuestionCheckpoint, start: Snapshot | None) -> Snapshot:
        """Return rows of answers and of stories, CKA by embedding, and of the start (None: this is
        it) the last layer's states.
        """
        snapshot = self.shift(model, start) if "shift" in self.measures else {}
        if self.measures & {"qa", "abstention"}:
            snapshot["qa"] = [*self.answers(model)]
        return snapshot

    def answers(self, model: QuestionCheckpoint) -> Iterator[Row]:
        """Yield a scored row for each answer; to variants only for abstention."""
        variants = self.content if "abstention" in self.measures else {"os": self.content["os"]}
        model.may_abstain = any(map(some_unanswerable, variants.values()))
        for variant, questions in variants.items():
            for answer in sorted(model.answers(questions, f"probing {variant}")):
                question = questions[answer.example]
                failure = answer.failure
                yield {
                    "variant": variant,
                    "id": question.id,
                    "unanswerable": question.answer_type == "unknown",
                    "passage": passage(self.originals.get(question.id, question)),
                    **({"failure": failure} if failure else scores(question, answer.text, None)),
                }

    def shift(self, model: QuestionCheckpoint, start: Snapshot | None) -> Snapshot:
        """Return how far embeddings move: from stories to their variants, and since the start."""
        rows = list[Row]()
        originals = self.originals
        for variant in [name for name in self.content if name != "os"]:
            pairs = [(originals[q.id], q) for q in self.content[variant] if q.id in originals]
            stories = measured(model, pairs, model, [-1], f"probing {variant}")
            rows += [{"variant": variant, **row} for story in stories for row in story]
        first: Any = First(model, start)
        moved, cka = between(first, model, [*originals.values()], [-1], "probing since the start")
        snapshot: Snapshot = {"shift": rows, "cka": cka}
        if start is None:
            snapshot["states"] = dict(ChainMap(*current.get().gathered(first.states)))
        if not any(math.isnan(row["distance"][0]) for row in moved):
            rows += [{"variant": START, **row} for row in moved]
            return snapshot
        if first.states:
            log.warning("tokens or width are not those of the start: shift since then is undefined")
        return snapshot | {"cka": {}}

    def numbers(self, snapshots: Mapping[str, Snapshot]) -> Numbers:
        """Yield the numbers of snapshots; others are compared with START."""
        names = [*snapshots]
        answers, stories = (
            pd.DataFrame(
                {"checkpoint": name, **row}
                for name in names
                for row in snapshots[name].get(part, ())
            )
            for part in ("qa", "shift")
        )
        for number in QA.numbers(answers, names):
            if number.place["variant"] == "os":
                yield f"val/qa/{self.name}{number.measure}", number
        for counted in counted_rows(answers):
            for number in ABSTENTION.numbers(counted, names):
                variant = number.place["variant"]
                measure = number.measure.removeprefix("abstention_")
                place = "" if variant == counted["variant"].iloc[0] else f"{variant}/"
                yield f"val/abstention/{self.name}{place}{measure}", number
        for number in chain(COSINES.numbers(stories, names), self.similarity(snapshots[NOW])):
            embedding = EMBEDDINGS[number.place["embedding"]]
            variant = number.place["variant"]
            yield f"val/shift/{self.name}{embedding}/{variant}/{number.measure}", number

    def similarity(self, snapshot: Snapshot) -> Iterator[Number]:
        """Yield CKA with the model at the start; if it is undefined, NaN for it and the cosine."""
        cka = snapshot.get("cka", {})
        for embedding in EMBEDDINGS if snapshot.get("shift") else ():
            place: dict[str, Any] = {"checkpoint": NOW, "embedding": embedding, "variant": START}
            if cka:
                yield plain("cka", cka[embedding][0], len(self.originals), **place)
            else:
                yield plain("mean", math.nan, 0, **place)
                yield plain("cka", math.nan, 0, **place)


def some_unanswerable(questions: Sequence[QAExample]) -> bool:
    """Whether the text of any question gives no answer."""
    return any(question.answer_type == "unknown" for question in questions)


class First:
    """The model at the start, as `between` uses it. At the start, it records the last layer's
    states (T, D) of each row on the CPU, by their width and the row's tokens; later it finds them
    there, else NaN.
    """

    def __init__(self, answerer: QuestionCheckpoint, start: Snapshot | None) -> None:
        self.answerer = answerer
        self.model = answerer.model
        self.records = start is None
        self.states: dict[tuple[int, ...], torch.Tensor] = (start or {}).get("states", {})

    def hidden_states(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor]:
        """Return the states of the last layer alone, (B, T, D)."""
        mask_BT = inputs["attention_mask"] != 0
        width = self.model.config.hidden_size
        if self.records:
            state_BTD = self.answerer.hidden_states(inputs)[-1]
        else:
            state_BTD = torch.zeros(*mask_BT.shape, width, device=self.answerer.device)
        for ids_T, mask_T, state_TD in zip(inputs["input_ids"], mask_BT, state_BTD, strict=True):
            row = (width, *ids_T[mask_T].tolist())
            if self.records:
                self.states[row] = state_TD[mask_T].cpu()
            else:
                state_TD[mask_T] = self.states.get(row, UNKNOWN).to(state_TD)
        return (state_BTD,)
