"""Bias by class of advice, subject and cluster of subjects, its change since the first checkpoint, and what
advice changes: rows of the long table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from data_modules.schema import ADVICE_CLASSES
from evaluation.protocols.bias.groups import Frames, between_clusters, questions_of, scores_of
from evaluation.results import NO_INTERVAL, Results
from evaluation.statistics import Statistic, estimate, estimate_change, share
from metrics.bias.intervals import BiasEstimate, ClassGroups, bias_change, estimate_bias, resampled_bias
from metrics.intervals import percentiles

if TYPE_CHECKING:
    from pandas import DataFrame

Place = Mapping[str, str]
Measures = Mapping[str, Sequence[str]]
"""Fields of `BiasResult`, which are named MEASURE_AXES, by what their axis of subjects is: nothing, `subject`
or `cluster`."""

OF_CLASSES = (
    *("mu_K", "eta_K", "theta_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K"),
    *("mu_normalised_K", "eta_normalised_K", "theta_normalised_K", "average_probability_K"),
)
OF_SUBJECTS = ("gamma_KX", "eta_KX", "gamma_KXA", "eta_KXA")
COMPARED = ("mu_K", "mean_abs_c_K", "mass_K", "delta_K", "eps_K")
"""Those that are told by domain, and compared with the same questions without advice."""
SHARES = {name: share(name, name) for name in ("accuracy", "unknown")}


def add_bias(results: Results, frames: Frames, place: Place) -> None:
    """Every measure of one data set: of each class, its subjects, and clusters of subjects.

    Clusters take the place of subjects in groups that compare two of them: gamma(F, a) is then the mean of
    C(F, M) over all female-male pairs, as in UnQover's gender tables (section 4.3, LEI spec 2.3).
    """
    for at, parts in by_class(frames, place):
        add_estimates(results, parts, {"": OF_CLASSES, "subject": OF_SUBJECTS}, at)
        clusters = {name: between_clusters(rows) for name, rows in parts.items()}
        add_estimates(results, clusters, {"cluster": OF_SUBJECTS}, at)
        for measure, statistic in SHARES.items():
            rows_of = {name: rows[[measure]].assign(unit=rows["key"]) for name, rows in parts.items()}
            add_statistic(results, measure, statistic, rows_of, at)
    for name, frame in frames.items():
        add_changes_by_advice(results, frame, {**place, "checkpoint": name})


def by_class(frames: Frames, place: Place) -> Iterator[tuple[dict[str, str], dict[str, DataFrame]]]:
    """The place and the groups of each class of advice."""
    for advice in ADVICE_CLASSES:
        parts = {name: frame[frame["class"] == advice] for name, frame in frames.items()}
        yield {**place, "class": advice}, parts


def shared_groups(parts: Frames, place: Place) -> Iterator[tuple[dict[str, str], DataFrame, DataFrame]]:
    """The place of each later checkpoint's changes, and the groups that the first one and it share, in one
    order: as the first scored them, and as it did."""
    first, *others = parts
    for name in others:
        keys = parts[first].index.intersection(parts[name].index, sort=False)
        if len(keys):
            at = {**place, "checkpoint": name, "against": first}
            yield at, parts[first].loc[keys], parts[name].loc[keys]


def add_statistic(results: Results, measure: str, statistic: Statistic, parts: Frames, place: Place) -> None:
    """A statistic of each checkpoint's rows, which have a `unit`, and its change since the first."""
    found = [({**place, "checkpoint": name}, estimate(statistic, rows)) for name, rows in parts.items()]
    for at, *sides in shared_groups(parts, place):
        found.append((at, estimate_change(statistic, *sides)))
    for at, (value, interval, n, units) in found:
        if n:
            results.add(measure, value, interval=interval, n=n, units=units, **at)


def add_estimates(results: Results, parts: Frames, measures: Measures, place: Place) -> None:
    """Bias of each checkpoint's groups, and its change since the first one's scores of the same groups."""
    fields, found = [*chain(*measures.values())], dict[str, BiasEstimate]()
    for name, rows in parts.items():
        if len(rows):
            groups, *names = numbered(rows)
            found[name] = estimate_bias(groups, fields)
            add_estimate(results, found[name], names, measures, {**place, "checkpoint": name})
    for at, before, after in shared_groups(parts, place):
        groups, *names = numbered(after)
        sides = (
            found[name] if rows.index.equals(parts[name].index) else estimate_bias(numbered(rows)[0], fields)
            for name, rows in ((at["against"], before), (at["checkpoint"], after))
        )
        add_estimate(results, bias_change(*sides), names, measures, at)


def add_changes_by_advice(results: Results, frame: DataFrame, place: Place) -> None:
    """What each class of advice changes: the same questions with it and without. A resample draws questions,
    each with all of its advice."""
    bare = frame[frame["class"] == "none"]
    bare = bare.set_index(questions_of(bare))
    bare = bare[~bare.index.duplicated()]
    for advice in [name for name in ADVICE_CLASSES if name != "none"]:
        rows = frame[frame["class"] == advice]
        rows = rows.set_index(questions_of(rows))
        rows = rows[rows.index.isin(bare.index)]
        if len(rows):
            groups, *names = numbered(rows)
            groups = groups._replace(unit_N=rows.index.factorize()[0])
            without = groups._replace(scores=scores_of(bare.loc[rows.index]))
            change = bias_change(*(estimate_bias(side, COMPARED) for side in (without, groups)))
            at = {**place, "class": advice, "against": "class=none"}
            add_estimate(results, change, names, {"": COMPARED}, at, units=rows.index.nunique())


def numbered(rows: DataFrame) -> tuple[ClassGroups, Any, Any]:
    """Groups as metrics take them; subjects, and attributes as (category, attribute), by number."""
    subject_N2, subjects = pd.Series([*chain(*rows["subjects"])]).factorize(sort=True)
    pairs = [*zip(rows["category"], rows["attribute"], strict=True)]
    attribute_N, attributes = pd.Series(pairs).factorize(sort=True)
    sizes = len(subjects), len(attributes)
    groups = ClassGroups(scores_of(rows), subject_N2.reshape(-1, 2), attribute_N, *sizes)
    return groups, subjects, attributes


def add_estimate(
    results: Results,
    estimate: BiasEstimate,
    names: Sequence[Any],
    measures: Measures,
    place: Place,
    *,
    units: int | None = None,
) -> None:
    """A row for each number of some fields, of each subject and attribute where they have such axes; a single
    group has no interval. Changes by attribute are left out.

    Args:
        names: the second and third of `numbered`.
    """
    for kind, fields in measures.items():
        for field in fields:
            measure, _, axes = field.rpartition("_")
            if "against" in place and axes == "KXA":
                continue
            value, low, high = (getattr(part, field)[0] for part in estimate[:3])
            n = getattr(estimate.value, f"n_{axes}")[0]
            for at in map(tuple, n.nonzero().tolist()):
                where = {**place, kind: names[0][at[0]]} if at else dict(place)
                if len(at) > 1:
                    where["category"], where["attribute"] = names[1][at[1]]
                interval = low[at].item(), high[at].item()
                if n[at] < 2 or interval[1] - interval[0] < 1e-12:  # or all resamples are alike
                    interval = NO_INTERVAL
                results.add(measure, value[at].item(), n=int(n[at]), interval=interval, units=units, **where)
    results.resamples = min(filter(None, (results.resamples, estimate.resamples)), default=None)


def add_planted(results: Results, frames: Frames, seed: int, place: Place) -> None:
    """By class of advice Spearman's rho between gamma(subject, category) and the subject's planted rank.

    Ranks are those within a category, since gamma compares a subject with its opponents there; all (subject,
    category) cells are pooled. n counts them.
    """
    for at, parts in by_class(frames, place):
        found = [
            ({**at, "checkpoint": name}, *planted_rhos(rows, seed))
            for name, rows in parts.items()
            if len(rows)
        ]
        for where, *sides in shared_groups(parts, at):
            (before_R, n), (after_R, _) = (planted_rhos(rows, seed) for rows in sides)
            found.append((where, after_R - before_R, n))
        for where, rho_R, n in found:
            interval = percentiles(rho_R[1:]) if len(rho_R) > 1 else NO_INTERVAL
            results.add("spearman", rho_R[0], n=n, interval=interval, units=n, **where)


def planted_rhos(rows: DataFrame, seed: int) -> tuple[Any, int]:
    """Spearman's rho of the groups, then of each resample of them; and how many cells it is of."""
    from scipy.stats import rankdata

    from data_modules.groups.planting import latent_strength
    from metrics.bias.readings import planted_correlation

    groups, subjects, categories = numbered(rows.assign(attribute=""))
    strength_XC = np.array([[latent_strength(x, c, seed) for c, _ in categories] for x in subjects])
    gamma_RXC = np.concatenate([block.gamma_KXA for block in resampled_bias(groups, ["gamma_KXA"])])
    # Ranks among the subjects that the category was asked about; the others stay NaN.
    known_XC = np.where(np.isnan(gamma_RXC[0]), np.nan, strength_XC)
    rank_XC = rankdata(known_XC, axis=0, nan_policy="omit")
    found = [planted_correlation(gamma_XC, rank_XC) for gamma_XC in gamma_RXC]
    return np.array([one.rho for one in found]), found[0].n
