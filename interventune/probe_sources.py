"""What a probe asks: groups about bias, questions about answers, abstention and embedding shift.

Shape letters: B rows, T tokens, D hidden.
"""

import logging
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from pandas import DataFrame

from .data_modules.schema.groups import ADVICE_CLASSES
from .data_modules.schema.questions import DELETED, QAExample, Variant
from .evaluation.answering.checkpoint import QuestionCheckpoint
from .evaluation.answering.work import current
from .evaluation.protocols.bias.asked import read_sets
from .evaluation.protocols.bias.command import BIAS
from .evaluation.protocols.bias.groups import with_scores
from .evaluation.protocols.bias.measures import (
    GROUPS,
    compared,
    maxima_of,
    of_rows,
    prepared,
)
from .evaluation.protocols.faithfulness.abstention import ABSTENTION, counted_rows
from .evaluation.protocols.faithfulness.command import FAITHFULNESS, scores
from .evaluation.protocols.shift import SHIFT, between, measured, originals_by_id
from .evaluation.results import Results, Row, plain
from .evaluation.variants import VariantOptions, passage, read_stories
from .storage.errors import DataError

log = logging.getLogger(__name__)

Measure = Literal["bias", "qa", "abstention", "shift"]
Snapshot = dict[str, Any]
"""What a source found at one time, as plain values and tensors; empty if it is lost."""
SIZES = replace(GROUPS, measures={name: GROUPS.measures[name] for name in ("mean_abs_c", "mass")})
QA = replace(
    FAITHFULNESS,
    cells=[("variant",)],
    measures={"f1": "F1", "em": "EM", "unknown": "unknown"},
    failures="",
)
COSINES = replace(SHIFT, cells=SHIFT.cells[:1], measures={"cosine": SHIFT.measures["cosine"]})
EMBEDDINGS = {"cls": "cls", "common": "tokens"}
"""Names of the embeddings of `shift` in keys."""
START, NOW = "start", "now"
UNKNOWN = torch.tensor(math.nan)
"""The states of a row that the start did not see."""
Tables = Iterator[tuple[Any, DataFrame]]
"""Keys, and the long table with a row for each, in which snapshots are checkpoints."""


class Groups:
    """A source of groups."""

    gives = frozenset[Measure]({"bias"})

    def __init__(self, name: str, source: str, limit: int, _: object) -> None:
        self.name = name
        sets, self.frame = read_sets({"": source}, limit)
        self.content = sets[""]

    def ask(self, model: QuestionCheckpoint, _: object) -> Snapshot:
        """Return the scores of the groups."""
        return {"bias": model.subject_scores(self.content, "probing bias")}

    def tables(self, snapshots: Mapping[str, Snapshot]) -> Tables:
        """Yield the numbers of snapshots; others are compared with START."""
        results = Results(BIAS.by, BIAS.units)
        scored = {
            name: prepared(with_scores(self.frame.assign(checkpoint=name), snapshot["bias"]))
            for name, snapshot in snapshots.items()
            if snapshot
        }
        for advice in ADVICE_CLASSES:
            parts = {name: rows[rows["class"] == advice] for name, rows in scored.items()}
            results.extend(maxima_of(compared(parts, {"class": advice}), ["mu"]))
            results.extend(of_rows(SIZES, parts))
        frame = results.frame
        yield f"val/bias/{self.name}" + frame["class"] + "/" + frame["measure"], frame


class Questions:
    """A source of questions about stories, evaluated on the original and without the evidence."""

    gives = frozenset[Measure]({"qa", "abstention", "shift"})

    def __init__(
        self, name: str, source: str, limit: int, measures: Sequence[Measure] | None
    ) -> None:
        self.name, self.measures = name, self.gives & {*(measures or self.gives)}
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
                question, failure = questions[answer.example], answer.failure
                yield {
                    "variant": variant,
                    "id": question.id,
                    "unanswerable": question.answer_type == "unknown",
                    "passage": passage(self.originals.get(question.id, question)),
                    **({"failure": failure} if failure else scores(question, answer.text, None)),
                }

    def shift(self, model: QuestionCheckpoint, start: Snapshot | None) -> Snapshot:
        """Return how far embeddings move: from stories to their variants, and since the start."""
        rows, originals = list[Row](), self.originals
        for variant in [name for name in self.content if name != "os"]:
            pairs = [(originals[q.id], q) for q in self.content[variant] if q.id in originals]
            for story in measured(model, pairs, model, [-1], f"probing {variant}"):
                rows += [{"variant": variant, **row} for row in story]
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

    def tables(self, snapshots: Mapping[str, Snapshot]) -> Tables:
        """Yield the numbers of snapshots; others are compared with START."""
        names = [*snapshots]
        answers, stories = (
            [{"checkpoint": name, **row} for name in names for row in snapshots[name].get(part, ())]
            for part in ("qa", "shift")
        )
        if answers:
            originals = [row for row in answers if row["variant"] == "os"]
            frame = QA.results(originals, names).frame
            yield f"val/qa/{self.name}" + frame["measure"], frame
        if counted := [*counted_rows(answers)]:
            frame = ABSTENTION.results(counted, names).frame
            is_main = frame["variant"] == frame["variant"].iloc[0]
            place = f"val/abstention/{self.name}" + (frame["variant"] + "/").mask(is_main, "")
            yield place + frame["measure"].str.removeprefix("abstention_"), frame
        if stories:
            results, cka = COSINES.results(stories, names), snapshots[NOW]["cka"]
            for embedding in EMBEDDINGS:
                place = {"checkpoint": NOW, "embedding": embedding, "variant": START}
                if cka:
                    results.add(plain("cka", cka[embedding][0], len(self.originals), **place))
                else:
                    results.add(plain("cosine", math.nan, 0, **place))
                    results.add(plain("cka", math.nan, 0, **place))
            frame = results.frame.replace({"embedding": EMBEDDINGS, "measure": {"cosine": "mean"}})
            place = f"val/shift/{self.name}" + frame["embedding"] + "/" + frame["variant"]
            yield place + "/" + frame["measure"], frame


def some_unanswerable(questions: Sequence[QAExample]) -> bool:
    """Whether the text of any question gives no answer."""
    return any(question.answer_type == "unknown" for question in questions)


class First:
    """The model at the start, as `between` uses it. At the start, it records the last layer's
    states (T, D) of each row on the CPU, by their width and the row's tokens; later it finds them
    there, else NaN.
    """

    def __init__(self, answerer: QuestionCheckpoint, start: Snapshot | None) -> None:
        self.answerer, self.model, self.records = answerer, answerer.model, start is None
        self.states: dict[tuple[int, ...], torch.Tensor] = (start or {}).get("states", {})

    def hidden_states(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor]:
        """Return the states of the last layer alone, (B, T, D)."""
        mask_BT, width = inputs["attention_mask"] != 0, self.model.config.hidden_size
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
