"""The reports of debiasing consistency."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interventune.evaluation.protocol import Bars, Protocol, Results, Row, Said, Statistic, View
from interventune.metrics.consistency import DOMAINS, THRESHOLD

from .measures import EVIDENCE

TESTS = ("effect", "polarity", "importance", "transferability")
AVERAGE = {"average": "average rate"}
NOTE = (
    f"A rate is the share of continuations with a score of at least {THRESHOLD:g}; the average "
    "is the mean over attributes. The tests and how the readings decide: docs/consistency.md."
)

PERPLEXITY = Statistic(
    "perplexity", ("loss", "targets"), lambda sums_RC: np.exp(sums_RC[:, 1] / sums_RC[:, 2])
)

WRITING = Protocol(
    title="Continuations",
    unit="prompt",
    units="prompts",
    by=("method", "domain", "variant"),
    cells=[("method", "domain")],
    measures={},
    views=[
        View("Perplexity of a text, n: chunks", ("method", "variant"), {"perplexity": "perplexity"})
    ],
    headline=[
        Said("perplexity", "perplexity without debiasing", variant="default", domain=""),
        Said("perplexity", "with debiasing", variant="original", domain=""),
    ],
    good="hardly higher with debiasing",
    failures="continuations",
)
JUDGING = Protocol(
    title="Debiasing consistency",
    unit="prompt",
    units="prompts",
    item=("prompt", "method", "domain", "variant", "group"),
    by=("method", "domain", "variant", "reading"),
    cells=[("method", "domain", "variant")],
    measures=AVERAGE,
    views=[
        View("Average rates", ("method", "domain", "variant"), AVERAGE),
        View(
            "Checklist",
            ("checkpoint", "method", "reading", "domain"),
            {test: test for test in TESTS},
            across="measure",
            caption="1: pass, 0: fail, –: not decidable (evidence), or not part of the reading "
            "(the paper tests polarity and importance on adversarial prompts).",
        ),
        View(
            "Differences on the same prompts",
            ("method", "domain", "against", "variant"),
            AVERAGE,
            where={"against": ["variant=default", "variant=original"]},
        ),
    ],
    headline=[
        Said("average", f"{domain} prompts: texts flagged {when}", domain=domain, variant=variant)
        for domain in DOMAINS
        for variant, when in (
            ("default", "without debiasing"),
            ("original", "with debiasing"),
            ("opposite", "with opposite specifications"),
        )
    ],
    good="fewer with debiasing, more with opposite specifications, all tests passed",
    failures="continuations",
    console=2,
)


def judging(attributes: Sequence[str], rows: Sequence[Row]) -> Protocol:
    """Return the protocol for scores of some attributes, in the order of tables, and rows with
    scores. Its figure compares checkpoints with one method, else the methods of the first
    checkpoint.
    """
    headings = {name: name.replace("_", " ") for name in attributes}
    place = ("checkpoint", "method", "domain", "variant")
    rates = View("Rates by attribute", place, headings, across="measure", interval=False)
    figure = Bars(x="variant", measures=AVERAGE, panels="domain", label="average rate (%)")
    scorers = {row.get("scored_by", "the source of the rows") for row in rows}
    if len({row["method"] for row in rows}) > 1:
        first = rows[0]["checkpoint"]
        figure = replace(figure, hue="method", where={"checkpoint": first}, x_label=first)
    return replace(
        JUDGING,
        measures={**AVERAGE, **headings},
        views=[*JUDGING.views, rates],
        figures={"consistency.png": figure},
        notes=[NOTE, f"Scores by {', '.join(sorted(scorers))}."],
    )


def verdict_sentence(results: Results, _: Sequence[str], margin: float) -> str:
    """Summarise the evidence on each system for adversarial prompts."""
    frame = results.frame
    evidence = frame[(frame["reading"] == EVIDENCE) & (frame["domain"] == DOMAINS[0])]
    parts = []
    for system, tests in evidence.groupby(["checkpoint", "method"], sort=False):
        verdicts = tests["value"].map({0.0: "fail", 1.0: "pass"}).fillna("not decidable")
        parts.append(f"{' '.join(system)}: {', '.join(tests['measure'] + ' ' + verdicts)}")
    return f"Tests on {DOMAINS[0]} prompts, with a margin of {margin:g} points: {'; '.join(parts)}."
