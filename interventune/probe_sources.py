"""What a probe asks: groups about bias, questions about answers, abstention and embedding shift.

Shape letters: B rows, T tokens, D hidden.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any, Literal

import torch
from pandas import DataFrame

from interventune.data_modules.schema.groups import ADVICE_CLASSES
from interventune.data_modules.schema.questions import DELETED
from interventune.evaluation.answering.checkpoint import QuestionCheckpoint
from interventune.evaluation.answering.work import current
from interventune.evaluation.protocols.bias.asked import read_sets
from interventune.evaluation.protocols.bias.command import BIAS
from interventune.evaluation.protocols.bias.groups import with_scores
from interventune.evaluation.protocols.bias.measures import (
    GROUPS,
    compared,
    maxima_of,
    of_rows,
    prepared,
)
from interventune.evaluation.protocols.faithfulness.abstention import ABSTENTION, counted_rows
from interventune.evaluation.protocols.faithfulness.command import FAITHFULNESS, scores
from interventune.evaluation.protocols.shift import SHIFT, between, measured, originals_by_id
from interventune.evaluation.results import Results
from interventune.evaluation.variants import VariantOptions, passage, read_stories
from interventune.storage.errors import DataError

log = logging.getLogger(__name__)

Measure = Literal["bias", "qa", "abstention", "shift"]
Kept = dict[str, Any]
"""What later probes are compared with, as plain values and tensors; empty if it is lost."""
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


class Groups:
    """A source of groups."""

    gives = frozenset[Measure]({"bias"})

    def __init__(self, source: str, limit: int, _: object) -> None:
        sets, self.frame = read_sets({"": source}, limit)
        self.asked = sets[""]

    def ask(self, model: QuestionCheckpoint, *_: object) -> Kept:
        """Return what later probes are compared with: the scores of the groups."""
        return {"bias": model.subject_scores(self.asked, "probing bias")}

    def tables(self, start: Kept, now: Kept) -> Iterator[tuple[str, DataFrame]]:
        """Yield long tables, each with the pattern of its rows' keys."""
        results = Results(BIAS.by, BIAS.units)
        sides = {START: start, NOW: now}
        scored = {
            name: prepared(with_scores(self.frame.assign(checkpoint=name), kept["bias"]))
            for name, kept in sides.items()
            if kept
        }
        for advice in ADVICE_CLASSES:
            parts = {name: side[side["class"] == advice] for name, side in scored.items()}
            results.extend(maxima_of(compared(parts, {"class": advice}), ["mu"]))
            results.extend(of_rows(SIZES, parts))
        yield "bias/{class}/{measure}", results.frame


class Questions:
    """A source of questions about stories, evaluated on the original and without the evidence."""

    gives = frozenset[Measure]({"qa", "abstention", "shift"})

    def __init__(self, source: str, limit: int, measures: Sequence[Measure] | None) -> None:
        needs_deletion = {"abstention", "shift"} & {*(measures or self.gives)}
        try:
            stories = read_stories(
                VariantOptions([source], None if needs_deletion else ["os"], limit)
            )
        except DataError as error:  # perhaps only the deletion is impossible
            stories = read_stories(VariantOptions([source], ["os"], limit))
            unanswerable = any(one.answer_type == "unknown" for one in stories.originals)
            if measures and ("shift" in measures or not unanswerable):
                raise
            log.warning("%s; the probe measures what needs no such variant", error)
        if not stories.originals:
            raise DataError(
                f"{source}: holds no original stories, which variants are compared with"
            )
        self.originals = originals_by_id(stories)
        self.asked = {
            name: rows for name, rows in stories.examples.items() if name in {"os", *DELETED}
        }

    def ask(self, model: QuestionCheckpoint, measures: Set[Measure], start: Kept | None) -> Kept:
        """Return what later probes are compared with: rows of answers and stories, CKA by
        embedding, and of the start (None: this is it) the last layer's states.
        """
        found: Kept = {"qa": [], "shift": [], "cka": {}, "states": {}}
        asked = {
            name: rows
            for name, rows in self.asked.items()
            if name == "os" or "abstention" in measures
        }
        if measures & {"qa", "abstention"}:
            model.may_abstain = any(
                one.answer_type == "unknown" for rows in asked.values() for one in rows
            )
            for variant, examples in asked.items():
                for answer in sorted(model.answers(examples, f"probing {variant}")):
                    one = examples[answer.example]
                    row = {
                        "variant": variant,
                        "id": one.id,
                        "unanswerable": one.answer_type == "unknown",
                    }
                    row["passage"] = passage(self.originals.get(one.id, one))
                    failed = (
                        {"failure": answer.failure}
                        if answer.failure
                        else scores(one, answer.text, None)
                    )
                    found["qa"].append(row | failed)
        if "shift" in measures:
            for variant in [name for name in self.asked if name != "os"]:
                pairs = [
                    (own, one) for one in self.asked[variant] if (own := self.originals.get(one.id))
                ]
                for story in measured(model, pairs, model, [-1], f"probing {variant}"):
                    found["shift"] += [{"variant": variant, **row} for row in story]
            first: Any = First(model, start)
            rows, cka = between(
                first, model, [*self.originals.values()], [-1], "probing since the start"
            )
            if start is None:
                for part in current.get().gathered(first.states):
                    found["states"] |= part
            if not any(math.isnan(row["distance"][0]) for row in rows):
                found["cka"] = cka
                found["shift"] += [{"variant": START, **row} for row in rows]
            elif first.states:
                log.warning(
                    "tokens or width are not those of the start: shift since then is undefined"
                )
        return found

    def tables(self, start: Kept, now: Kept) -> Iterator[tuple[str, DataFrame]]:
        """Yield long tables, each with the pattern of its rows' keys."""

        def rows(kind: str) -> list[Kept]:
            sides = ((START, start), (NOW, now))
            return [
                {"checkpoint": name, **row} for name, side in sides for row in side.get(kind, ())
            ]

        if now["qa"]:
            originals = [row for row in rows("qa") if row["variant"] == "os"]
            yield "qa/{measure}", QA.results(originals, [START, NOW]).frame
        if counted := [*counted_rows(rows("qa"))]:
            frame = ABSTENTION.results(counted, [START, NOW]).frame
            first, *others = frame["variant"].unique()
            names = {first: "", **{variant: f"{variant}/" for variant in others}}
            frame["measure"] = frame["measure"].str.removeprefix("abstention_")
            yield "abstention/{variant}{measure}", frame.replace({"variant": names})
        if now["shift"]:
            frame = COSINES.results(rows("shift"), [START, NOW]).frame
            yield "shift/{embedding}/{variant}/mean", frame.replace({"embedding": EMBEDDINGS})
            results = Results(SHIFT.by, SHIFT.units)
            for embedding, name in EMBEDDINGS.items():
                place: Kept = {"checkpoint": NOW, "embedding": name, "variant": START}
                if cka := now["cka"]:
                    results.add("cka", cka[embedding][0], n=len(self.originals), **place)
                for measure in () if cka else ("mean", "cka"):
                    results.add(measure, math.nan, n=0, **place)
            yield "shift/{embedding}/{variant}/{measure}", results.frame


class First:
    """The model at the start, as `between` uses it. At the start, it keeps the last layer's states
    (T, D) of each row on the CPU, by their width and the row's tokens; later it finds them there,
    else NaN.
    """

    def __init__(self, model: QuestionCheckpoint, start: Kept | None) -> None:
        self.asked, self.model, self.keeps = model, model.model, start is None
        self.states: dict[tuple[int, ...], torch.Tensor] = (start or {}).get("states", {})

    def hidden_states(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor]:
        """Return the states of the last layer alone, (B, T, D)."""
        mask_BT, width = inputs["attention_mask"] != 0, self.model.config.hidden_size
        if self.keeps:
            state_BTD = self.asked.hidden_states(inputs)[-1]
        else:
            state_BTD = torch.full((*mask_BT.shape, width), math.nan, device=self.asked.device)
        for ids_T, mask_T, state_TD in zip(inputs["input_ids"], mask_BT, state_BTD, strict=True):
            row = (width, *ids_T[mask_T].tolist())
            if self.keeps:
                self.states[row] = state_TD[mask_T].cpu()
            elif row in self.states:
                state_TD[mask_T] = self.states[row].to(state_TD)
        return (state_BTD,)
