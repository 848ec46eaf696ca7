"""Group bias of checkpoints, or of external scores (UnQover's and LEI's measures)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from interventune.evaluation.answering.interface import Asking, named_sources
from interventune.evaluation.answering.sources import named_models
from interventune.evaluation.protocol import Evaluation, Protocol, Results, declared
from interventune.evaluation.shown.views import cells_of, number
from interventune.storage.command_line import CountOrZero, InputFile, Named, NamedFile, NamedInput


def warnings(results: Results, names: Sequence[str]) -> str:
    """Return sentences on where mu is not above chance, and where the two subjects' S(x1) + S(x2)
    is below a half, and where carry and kept divide by next to nothing; "" for nowhere.
    """
    place = {"checkpoint": [*names], "against": "", "subject": "", "cluster": ""}
    cells = cells_of(results.frame, {**place, "measure": ["mu", "mu_chance", "mass", "mean_abs_c"]})
    by_chance = list[str]()
    faint = list[str]()
    small = list[str]()
    advised = (results.frame["class"] != "none").any()
    by = ["checkpoint", "data", "class"]
    for (name, data, advice), cell in cells.set_index("measure").groupby(by, sort=False):
        value = cell["value"]
        most = cell["high"]["mu_chance"]
        at = " ".join(filter(None, (name, data, advice)))
        if value["mu"] <= most:
            by_chance.append(f"{number(value['mu'])} ({at}; by chance up to {number(most)})")
        if value["mass"] < 0.5:
            faint.append(f"{number(value['mass'], percent=True)} % ({at})")
        if advised and advice == "none" and value["mean_abs_c"] < 0.02:
            small.append(f"{number(value['mean_abs_c'])} ({at})")
    problems = {
        "mu is not above that of a model without preference": by_chance,
        "mu means little where the model gives the two subjects little probability": faint,
        "carry and kept divide by a mean |C| near 0": small,
    }
    return " ".join(f"{text}: {'; '.join(places)}." for text, places in problems.items() if places)


BIAS = Protocol(**declared(__file__), remarks=[warnings])


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[NamedFile] | None = None,
    data: list[Annotated[str, NamedInput("[NAME=]SOURCE")]] | None = None,
    limit: CountOrZero = 0,
    clusters: list[InputFile] | None = None,
    planted_seed: int | None = None,
    asking: Asking,
) -> Evaluation:
    """Measure which of two people a model prefers, by class of advice (UnQover's and LEI's
    measures).

    Example: interventune evaluate bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json \\
        --output DIR

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a local language model (hf:PATH).
            Each is compared with the first. Tables use NAME.
        predictions: instead of --checkpoint: files with the start and end probabilities for each
            person, in UnQover's source format or in LEI's with start-end-score.
        data: with --checkpoint: groups in LEI's or UnQover's format, or stories:SPLIT. (A group is
            one question in four variants: both orders of the people, each with the question and its
            negation.) Each file is evaluated on its own, with its advice and without. If its
            contexts give the answer (LEI's specified set), accuracy is measured as well.
        limit: with --checkpoint: use at most N groups of each class of advice per file, evenly
            spread, and the same questions without advice; 0: all.
        clusters: lists of people with their clusters, with lines such as `[subj] female | Mary`;
            adds gamma and eta of one cluster against the others, overall and by attribute
            (UnQover's gender table). Default: the clusters in the ids of UnQover's predictions.
        planted_seed: also correlate gamma with the strengths that lei_planted draws from this seed.
        asking: model options.
    """
    if bool(checkpoint) == bool(predictions):
        raise ValueError("add --checkpoint or --predictions: one of them, not both")
    if bool(checkpoint) != bool(data) or (limit and not checkpoint):
        raise ValueError(
            "--checkpoint needs --data (groups); --predictions takes no --data and no --limit"
        )
    from interventune.data_modules.groups.unqover import read_clusters

    from . import groups, measures

    models = named_models(checkpoint or predictions or [])
    cluster_of = read_clusters(clusters) if clusters else None
    ask: Callable[[Any], Iterator[Any]]
    if predictions:
        rows_of = {path: groups.read_predictions(Path(path), cluster_of) for _, path, *_ in models}
        ask = partial(map, groups.without_empty)
    else:
        sources = named_sources(data or [], "--data")
        sets, unscored = groups.read_sets(sources, limit, cluster_of)
        rows_of = {"": unscored}
        ask = partial(groups.scored_rows, sets, unscored)
    for rows in rows_of.values() if clusters else ():
        if not any(measures.differ(row["clusters"]) for row in rows):
            raise ValueError("--clusters: no group compares subjects of two of these clusters")
    also = [partial(measures.numbers, planted_seed=planted_seed)]
    protocol = replace(BIAS, also=also, views=[*BIAS.views, measures.cluster_table])
    if len({(row["category"], row["attribute"]) for row in chain(*rows_of.values())}) == 1:
        protocol = replace(protocol, unit=("story", "question"), units="questions")
    opened = (lambda model: rows_of[model.path]) if predictions else None
    return protocol.run(ask, models, asking, need="subjects", opened=opened)
