"""What the reports of debiasing consistency show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from evaluation.figures import Bars
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.protocols.consistency.measures import EVIDENCE
from evaluation.results import Results
from evaluation.views import Table, View
from metrics.consistency import DOMAINS, THRESHOLD

NOTE = (
    f"A rate is the share of continuations with a score of at least {THRESHOLD:g}, the average the mean over "
    "attributes; nonsense is all of its groups. What is tested, and how the readings decide: "
    "docs/consistency.md."
)
TESTS = ("effect", "polarity", "importance", "transferability")

WRITING = Protocol(
    title="Continuations",
    unit="prompt",
    units="prompts",
    by=("method", "domain", "variant"),
    cells=[("method", "domain")],
    measures={},
    views=[
        View("Perplexity of a text, n: chunks", ("method", "variant"), {"perplexity": "perplexity"}),
        View("Without a continuation", ("method", "domain"), {"failed": "without a continuation"}),
    ],
    headline=[
        Said("perplexity", "perplexity without debiasing", variant="default", domain=""),
        Said("perplexity", "with it", variant="original", domain=""),
    ],
    good="hardly more with debiasing",
    failures="continuations",
)
JUDGING = Protocol(
    title="Debiasing consistency",
    unit="prompt",
    units="prompts",
    by=("method", "domain", "variant", "group", "reading"),
    cells=[("method", "domain", "variant"), ("method", "domain", "variant", "group")],
    measures={},
    headline=[
        Said("average", f"flagged {when}", domain=domain, variant=variant)
        for domain in DOMAINS
        for variant, when in (
            ("default", "without debiasing"),
            ("original", "with it"),
            ("opposite", "with opposite specifications"),
        )
    ],
    good="fewer with debiasing, more with opposite specifications, all tests passed",
    failures="continuations",
    console=2,
)


def judging(
    attributes: Sequence[str], scorers: Iterable[str], systems: Mapping[str, Collection[str]]
) -> Protocol:
    """The protocol for scores of some attributes.

    Args:
        attributes: in the order of tables.
        scorers: who scored.
        systems: methods by checkpoint. The figure compares checkpoints with one method, else the methods of
            the first checkpoint.
    """
    headings = {name: name.replace("_", " ") for name in attributes}
    average = {"average": "average rate"}
    views = [
        View("Average rates", ("method", "domain", "variant"), average),
        View(
            "Differences on the same prompts",
            ("method", "domain", "against", "variant"),
            average,
            where={"against": ["variant=default", "variant=original"]},
        ),
        *(
            View(
                f"Rates on {domain} prompts",
                ("checkpoint", "method", "variant"),
                headings,
                across="measure",
                where={"domain": domain},
                interval=False,
            )
            for domain in DOMAINS
        ),
    ]
    figure = Bars(x="variant", measures=average, panels="domain", label="average rate (%)")
    if len(set().union(*systems.values())) > 1:
        first = next(iter(systems))
        figure = replace(figure, hue="method", where={"checkpoint": first}, x_label=first)
    return replace(
        JUDGING,
        measures={**average, **headings},
        views=views,
        figures={"consistency.png": figure},
        notes=[NOTE, f"Scores by {', '.join(scorers)}."],
    )


def checklist(results: Results) -> Table:
    """What each reading says of each system, in words."""
    frame = results.frame
    said = frame[frame["reading"] != ""]
    by = [name for name in ("checkpoint", "method", "reading", "domain") if said[name].nunique() > 1]
    rows = []
    for place, tests in said.groupby(by, sort=False):
        undecided = "not decidable" if EVIDENCE in place else "not asked"
        word_of = {
            test: {0.0: "fail", 1.0: "pass"}.get(value, undecided)
            for test, value in zip(tests["measure"], tests["value"], strict=True)
        }
        rows.append((*place, *(word_of.get(test, "") for test in TESTS)))
    caption = "Of the paper's readings polarity and importance are those of adversarial prompts."
    return Table("Checklist", (*by, *TESTS), tuple(rows), caption, lead=len(by))


def verdict_sentence(table: Table, margin: float) -> str:
    """What the evidence says of each system on adversarial prompts."""
    parts = []
    for row in table.rows:
        *system, reading, domain = row[: table.lead]
        if (reading, domain) == (EVIDENCE, DOMAINS[0]):
            tests = zip(table.header[table.lead :], row[table.lead :], strict=True)
            said = ", ".join(f"{test} {word}" for test, word in tests if word)
            parts.append(": ".join([*map(str, system), said]))
    return f"By the evidence on {DOMAINS[0]} prompts, margin {margin:g} points: {'; '.join(parts)}."
