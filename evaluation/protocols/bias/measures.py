"""From groups and their scores to rows of the long table, whoever made the scores.

Shape letters: N groups, V the four variants, S the two subjects, X subjects, A attributes, C categories,
L clusters of subjects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from data_modules.groups.specified import gold_of
from data_modules.schema import ADVICE_CLASSES, Group
from evaluation.results import NONE, Results
from metrics.bias.group_scores import score_groups
from metrics.bias.intervals import BiasEstimate, ClassGroups, estimate_bias, resampled_bias
from metrics.intervals import percentiles
from storage.spool import Spool

DOMAINS = ("domain", "advice_domain")
"""Of the subjects, and of what the advice speaks of."""

BY = (
    *("checkpoint", "data", "class", "advice_at", *DOMAINS, "sentence"),
    *("category", "attribute", "subject", "cluster"),
)

OF_CLASSES = (
    "mu_K",
    "eta_K",
    "theta_K",
    "mean_abs_c_K",
    "mass_K",
    "delta_K",
    "eps_K",
    "mu_normalised_K",
    "eta_normalised_K",
    "theta_normalised_K",
    "average_probability_K",
)
OF_SUBJECTS = ("gamma_KX", "eta_KX", "gamma_KXA", "eta_KXA")
"""Fields of `BiasResult`, named MEASURE_AXES; the field n_AXES counts the groups behind them."""

CHUNK = 4096
"""Rows that become plain numbers at a time."""


@dataclass(frozen=True)
class GroupTable:
    """What metrics need to know of N groups; subjects and attributes are numbered alphabetically."""

    keys: tuple[str, ...]
    subjects: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]
    """(category, attribute)."""
    class_N: Tensor
    subject_NS: Tensor
    attribute_N: Tensor
    domains: tuple[str, ...]
    domain_N2: Tensor
    """Of the subjects, and of what the advice speaks of: places in `domains`."""
    sentences: tuple[str, ...]
    """Advice, in the order of first appearance; of two orders with different advice, both."""
    sentence_N: Tensor
    golds: Mapping[int, tuple[int, tuple[str, str]]]
    """Of groups whose contexts decide, by index: the subject (0 or 1), and what both contexts call it."""
    texts: Spool[tuple[str, str, str, str]]
    """Question, its negation, advice (of two orders with different advice, both) and story of each group, in
    the order of its subjects."""

    @classmethod
    def of(cls, groups: Iterable[Group]) -> GroupTable:
        """Number the groups' subjects, attributes, domains and advice; holds ids, and the texts on disk."""
        rows, golds, texts = [], dict[int, tuple[int, tuple[str, str]]](), Spool[tuple[str, str, str, str]]()
        sentence_id, sentence_N = dict[str, int](), array("q")
        for g in groups:
            domains = (g.domain, g.advice_domain)
            rows.append((g.key, g.advice_class, g.subjects, (g.category, g.attribute), domains))
            if (gold := gold_of(g)) is not None:
                one, two = (variant.candidates[gold].text for variant in g.variants[::2])
                golds[len(rows) - 1] = gold, (one, two)
            first, negated = g.variants[:2]
            advice = " / ".join(dict.fromkeys(variant.advice for variant in g.variants))
            texts.append((first.question, negated.question, advice, first.context))
            sentence_N.append(sentence_id.setdefault(advice, len(sentence_id)))
        subjects = sorted({subject for row in rows for subject in row[2]})
        attributes = sorted({row[3] for row in rows})
        names = sorted({"", *(name for row in rows for name in row[4])})
        subject_id, attribute_id, domain_id = (
            {name: i for i, name in enumerate(known)} for known in (subjects, attributes, names)
        )
        return cls(
            keys=tuple(row[0] for row in rows),
            subjects=tuple(subjects),
            attributes=tuple(attributes),
            class_N=torch.tensor([ADVICE_CLASSES.index(row[1]) for row in rows]),
            subject_NS=torch.tensor([[subject_id[name] for name in row[2]] for row in rows]),
            attribute_N=torch.tensor([attribute_id[row[3]] for row in rows]),
            domains=tuple(names),
            domain_N2=torch.tensor([[domain_id[name] for name in row[4]] for row in rows]),
            sentences=tuple(sentence_id),
            sentence_N=torch.tensor(sentence_N),
            golds=golds,
            texts=texts,
        )


@dataclass(frozen=True)
class ScoredGroups:
    """The N groups of one data set with the scores of one checkpoint (or file).

    Args:
        cell: its checkpoint and data, and where its advice stands if that was asked for.
        table: the groups.
        score_NVS: S(x) = sqrt(p_start p_end), by subject, float64.
        answers: of groups whose contexts decide, by index: the answers to the question in both orders.
        offers_unknown: whether what S(x1) + S(x2) leaves of 1 is that of unknown.
        failures: a row for each question of a deciding context that was not answered.
    """

    cell: Mapping[str, str]
    table: GroupTable
    score_NVS: Tensor
    answers: Mapping[int, tuple[str, str]]
    offers_unknown: bool = False
    failures: Sequence[Mapping[str, str]] = ()

    def by_class(self) -> Iterator[tuple[dict[str, Any], ClassGroups]]:
        """The cell and the groups of each class of advice that has some."""
        t, scores = self.table, score_groups(self.score_NVS)
        groups = ClassGroups(scores, t.subject_NS, t.attribute_N, len(t.subjects), len(t.attributes))
        for k in t.class_N.unique().tolist():
            yield {**self.cell, "class": ADVICE_CLASSES[k]}, groups.where(t.class_N == k)


def add_bias(results: Results, scored: Sequence[ScoredGroups], cluster_of: Mapping[str, str]) -> None:
    """Every measure: of each class, of its subjects, and, where there are clusters of subjects, of these.

    Clusters take the place of subjects in groups that compare two of them: gamma(F, a) is then the mean of
    C(F, M) over all female-male pairs, as in UnQover's gender tables (section 4.3, LEI spec 2.3).
    """
    made = [(cell, groups, estimate_bias(groups), one) for one in scored for cell, groups in one.by_class()]
    made.sort(key=lambda part: ADVICE_CLASSES.index(part[0]["class"]))
    for cell, _, estimate, one in made:
        add_estimate(results, estimate, OF_CLASSES, one.table, cell)
        if one.offers_unknown and (mass := results.row("mass", **cell)):
            rest = 1 - mass["high"], 1 - mass["low"]
            results.add("unknown", 1 - mass["value"], n=mass["n"], interval=rest, **cell)
    clusters = sorted(set(cluster_of.values()))
    for cell, groups, estimate, one in made:
        table = one.table
        add_estimate(results, estimate, OF_SUBJECTS, table, cell, "subject", table.subjects)
        cluster_X = torch.tensor(
            [clusters.index(cluster_of[x]) if x in cluster_of else -1 for x in table.subjects]
        )
        cluster_NS = cluster_X[groups.subject_NS]
        across_N = (cluster_NS >= 0).all(1) & (cluster_NS[:, 0] != cluster_NS[:, 1])
        if across_N.any():
            across = groups._replace(subject_NS=cluster_NS, num_subjects=len(clusters)).where(across_N)
            add_estimate(results, estimate_bias(across), OF_SUBJECTS, table, cell, "cluster", clusters)
    results.resamples = min(
        (estimate.resamples for _, _, estimate, _ in made if estimate.resamples), default=None
    )


def add_estimate(
    results: Results,
    estimate: BiasEstimate,
    fields: Sequence[str],
    table: GroupTable,
    cell: Mapping[str, str],
    kind: str = "",
    names: Sequence[str] = (),
) -> None:
    """A row for each number of some fields, and for each of `names` (subjects or clusters, says `kind`) where
    they have axes; a single group has no interval."""
    for field in fields:
        measure, _, axes = field.rpartition("_")
        value, low, high = (getattr(part, field)[0] for part in (estimate.value, estimate.low, estimate.high))
        n = getattr(estimate.value, f"n_{axes}")[0]
        for at in map(tuple, n.nonzero().tolist()):
            place = {**cell, kind: names[at[0]]} if at else dict(cell)
            if len(at) > 1:
                place["category"], place["attribute"] = table.attributes[at[1]]
            interval = (low[at].item(), high[at].item()) if n[at] > 1 else NONE
            results.add(measure, value[at].item(), n=int(n[at]), interval=interval, **place)


def add_accuracy(results: Results, scored: Sequence[ScoredGroups]) -> None:
    """Of groups whose contexts decide: in which share of the two orders the answer to the question holds the
    gold subject's name, white space and case aside (LEI, Figure 6; the authors' get_acc.py)."""
    for one in scored:
        rows = []
        for k, i in sorted((int(one.table.class_N[i]), i) for i in one.table.golds if i in one.answers):
            pairs = zip(one.table.golds[i][1], one.answers[i], strict=True)
            other = one.table.subjects[one.table.subject_NS[i, 1 - one.table.golds[i][0]]]
            right = [names_subject(text, name, other) for name, text in pairs]
            rows.append({"class": ADVICE_CLASSES[k], "group": i, "accuracy": sum(right) / 2})
        results.add_means(rows, ("accuracy",), unit="group", by=("class",), **one.cell)


def names_subject(text: str, name: str, other: str) -> bool:
    """Whether a text holds a name, white space and case aside, and not in the other name alone.

    >>> [names_subject(text, "Asian", "Caucasian") for text in ("the Asian man", "a Caucasian")]
    [True, False]
    """
    text, name, other = ("".join(words.lower().split()) for words in (text, name, other))
    return name in (text.replace(other, "|") if name in other else text)


def add_planted(
    results: Results, scored: ScoredGroups, seed: int, scope: Literal["category", "subject"]
) -> None:
    """Per class of advice: Spearman's rho between gamma(subject, category) and the subject's planted rank.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled. n counts them.
    """
    from data_modules.groups.planting import latent_strength
    from metrics.bias.readings import planted_correlation

    table = scored.table
    categories = sorted({category for category, _ in table.attributes})
    category_A = torch.tensor([categories.index(category) for category, _ in table.attributes])
    scopes = categories if scope == "category" else [""] * len(categories)
    strength_XC = np.array([[latent_strength(x, c, seed) for c in scopes] for x in table.subjects])
    for cell, groups in scored.by_class():
        by_category = groups._replace(
            attribute_N=category_A[groups.attribute_N], num_attributes=len(categories)
        )
        gamma_RXC = torch.cat([block.gamma_KXA for block in resampled_bias(by_category)]).numpy()
        # Ranks among the subjects that the category was asked about; the others stay NaN.
        known_XC = np.where(np.isnan(gamma_RXC[0]), np.nan, strength_XC)
        rank_XC = rankdata(known_XC, axis=0, nan_policy="omit")
        found, *drawn = (planted_correlation(gamma_XC, rank_XC) for gamma_XC in gamma_RXC)
        interval = percentiles(np.array([resample.rho for resample in drawn])) if drawn else NONE
        results.add("spearman", found.rho, n=found.n, interval=interval, **cell)


def example_rows(scored: ScoredGroups) -> Iterator[dict[str, Any]]:
    """One row per group: key, class, texts, the subject of the higher score in each of the four variants, the
    4 x 2 scores by subject, and its C, delta, eps and mass."""
    table = scored.table
    columns = (
        table.class_N,
        table.subject_NS,
        table.attribute_N,
        scored.score_NVS,
        *score_groups(scored.score_NVS),
    )
    for start in range(0, len(table.keys), CHUNK):
        part = slice(start, start + CHUNK)
        values = [column[part].tolist() for column in columns]
        texts = (table.texts[i] for i in range(start, min(start + CHUNK, len(table.keys))))
        rows = zip(table.keys[part], texts, *values, strict=True)
        for i, row in enumerate(rows, start):
            key, (question, negated, advice, story), k, pair, a, scores, *measured = row
            category, attribute = table.attributes[a]
            domains = [table.domains[d] for d in table.domain_N2[i].tolist()]
            subjects = [table.subjects[x] for x in pair]
            yield {
                **scored.cell,
                "key": key,
                "class": ADVICE_CLASSES[k],
                "category": category,
                "attribute": attribute,
                **{dimension: name for dimension, name in zip(DOMAINS, domains, strict=True) if name},
                "subjects": subjects,
                "question": question,
                "negated": negated,
                "advice": advice,
                "story": story,
                "references": [subjects[table.golds[i][0]]] if i in table.golds else [],
                **({"answers": scored.answers[i]} if i in table.golds and i in scored.answers else {}),
                "prediction": [subjects[second > first] for first, second in scores],
                "scores": scores,
                **dict(zip(("c", "c_normalised", "delta", "eps", "mass"), measured, strict=True)),
            }
