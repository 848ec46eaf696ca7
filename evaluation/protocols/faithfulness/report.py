"""Tables, figure and numbers of the faithfulness protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.schema import ANSWER_TYPES, DELETED
from evaluation.answering.variants import Variants, rejection_note
from evaluation.answering.yes_no import count_failures, failure_note
from evaluation.figures import COLOURS
from evaluation.report import Report
from evaluation.tables import Cell, Table
from metrics.answers import FaithfulnessResult

NOTE = (
    "Predictions are compared with the human answers to the original story (`os`). `ts` ends the story after "
    "the rationale: answers should stay. `ts_r` and `os_r` delete the rationale and put the bare answer at "
    "the end where the rest of the story lacks it, `_aug` a sentence that contains it: there EM and F1 "
    "measure *old answers*, which nothing in the text supports any more, and a faithful model says unknown "
    "(unk%)."
)


@dataclass(frozen=True)
class Scored:
    """One checkpoint on one variant."""

    checkpoint: str
    variant: str
    result: FaithfulnessResult
    domains: dict[str, FaithfulnessResult]
    rows: list[dict[str, Any]]
    failures: int
    """Questions that a language model did not answer (limits, errors); scored nowhere."""


def faithfulness_report(scored: Sequence[Scored], variants: Variants, about: dict[str, Any]) -> Report:
    """The report of all checkpoints on all variants."""
    tables = [overview(scored)]
    if variants.kinds:
        tables.append(by_type(scored))
    if any(len(item.domains) > 1 for item in scored):
        tables.append(by_domain(scored))
    rows = [row for item in scored for row in item.rows]
    failures = count_failures(rows, dict.fromkeys(item.checkpoint for item in scored))
    notes = [NOTE, rejection_note(variants), *failure_note(failures, "questions, over all variants")]
    return Report(
        title=f"Semantic faithfulness on {variants.dataset or 'this data'}",
        metrics=dict(metrics(scored)),
        tables=tuple(tables),
        about=about,
        notes=tuple(note for note in notes if note),
        figures={"faithfulness.png": figure(scored)},
        examples=rows,
    )


def percent(value: Any) -> str:
    """One decimal, as the papers print; a dash where nothing was counted."""
    number = float(value)
    return f"{100 * number:.1f}" if number == number else "–"


def overview(scored: Sequence[Scored]) -> Table:
    """The papers' Tables 4 and 5; questions without an answer are a column where there are any."""
    failing = any(s.failures for s in scored)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            s.checkpoint,
            s.variant,
            percent(s.result.f1),
            percent(s.result.em),
            percent(s.result.unknown),
            int(s.result.n),
            *[s.failures] * failing,
        )
        for s in scored
    )
    header = ("checkpoint", "variant", "F1", "EM", "unk%", "N", *["no answer"] * failing)
    return Table("By variant, in percent", header, rows)


def by_type(scored: Sequence[Scored]) -> Table:
    """F1, EM and unk% by the type of the original answer."""
    rows = []
    for s in scored:
        for k, kind in enumerate(ANSWER_TYPES):
            if n := int(s.result.n_K[k]):
                em, f1 = percent(s.result.em_K[k]), percent(s.result.f1_K[k])
                rows.append((s.checkpoint, s.variant, kind, f1, em, percent(s.result.unknown_K[k]), n))
    header = ("checkpoint", "variant", "answer", "F1", "EM", "unk%", "N")
    return Table("By type of the original answer, in percent", header, tuple(rows))


def by_domain(scored: Sequence[Scored]) -> Table:
    """F1, EM and unk% by domain."""
    rows = tuple(
        (s.checkpoint, s.variant, domain or "–", percent(r.f1), percent(r.em), percent(r.unknown), int(r.n))
        for s in scored
        for domain, r in s.domains.items()
    )
    header = ("checkpoint", "variant", "domain", "F1", "EM", "unk%", "N")
    return Table("By domain, in percent", header, rows)


def metrics(scored: Sequence[Scored]) -> Iterator[tuple[str, float | int]]:
    """Flat keys: `[CHECKPOINT/]ts_r/em`, and by type `[CHECKPOINT/]ts_r/span/em`; shares in [0, 1]."""
    several = len({s.checkpoint for s in scored}) > 1
    for s in scored:
        at = f"{s.checkpoint}/{s.variant}" if several else s.variant
        for name in ("em", "f1", "unknown"):
            yield f"{at}/{name}", float(getattr(s.result, name))
        yield f"{at}/n", int(s.result.n)
        yield f"{at}/failures", s.failures
        for k, kind in enumerate(ANSWER_TYPES):
            if int(s.result.n_K[k]):
                for name in ("em", "f1", "unknown"):
                    yield f"{at}/{kind}/{name}", float(getattr(s.result, f"{name}_K")[k])
                yield f"{at}/{kind}/n", int(s.result.n_K[k])


def figure(scored: Sequence[Scored]) -> Callable[[Path], None]:
    """EM and unk% side by side: one group of bars a variant, one bar a checkpoint."""

    def draw(path: Path) -> None:
        from matplotlib.figure import Figure

        variants = list(dict.fromkeys(s.variant for s in scored))
        checkpoints = list(dict.fromkeys(s.checkpoint for s in scored))
        found = {(s.checkpoint, s.variant): s.result for s in scored}
        drawn = Figure(figsize=(4 + 1.3 * len(variants) + 0.4 * len(checkpoints), 3.6), layout="constrained")
        panels = drawn.subplots(1, 2, sharey=True)
        for panel, name, title in zip(panels, ("em", "unknown"), ("EM", "says unknown"), strict=True):
            width = 0.8 / len(checkpoints)
            for c, checkpoint in enumerate(checkpoints):
                at = [v + (c - (len(checkpoints) - 1) / 2) * width for v in range(len(variants))]
                heights = [100 * float(getattr(found[checkpoint, v], name)) for v in variants]
                panel.bar(at, heights, width, label=checkpoint, color=COLOURS[c % len(COLOURS)])
                for x, height in zip(at, heights, strict=True):
                    if height == height:
                        panel.annotate(f"{height:.0f}", (x, height), ha="center", va="bottom", fontsize=7)
            panel.set_xticks(range(len(variants)), [v + (" *" if v in DELETED else "") for v in variants])
            panel.set_title(title, loc="left", fontsize=10)
            panel.set_ylim(0, 108)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("% of questions")
        handles, labels = panels[0].get_legend_handles_labels()
        columns = min(4, len(labels))
        drawn.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=9)
        drawn.supxlabel("* rationale deleted: EM is the share of old answers", fontsize=8)
        drawn.savefig(path, dpi=150)

    return draw
