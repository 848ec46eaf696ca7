"""Group bias of checkpoints, or of scores made elsewhere (UnQover's and LEI's measures).

interventune evaluate bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json --output DIR
interventune evaluate bias --checkpoint uqa=hf:allenai/unifiedqa-t5-base --data dev.json --output DIR
interventune evaluate bias --predictions before=A.json after=B.json --output DIR
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import Asking, named_sources
from evaluation.report import Evaluation
from evaluation.results import Results
from storage.command_line import AtLeast, Named

if TYPE_CHECKING:
    from data_modules.schema import Group


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[Annotated[str, "[NAME=]FILE"]] | None = None,
    data: list[Annotated[str, "[NAME=]SOURCE"]] | None = None,
    limit: Annotated[int, AtLeast(0)] = 0,
    clusters: list[Annotated[str, "FILE"]] | None = None,
    planted_seed: int | None = None,
    asking: Asking = Asking(prompt="unifiedqa"),  # noqa: B008  frozen
) -> Evaluation:
    """Group bias: gamma, eta, mu and their relatives, by class of advice.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a local language model (hf:PATH).
        predictions: in place of checkpoints: files with the subjects' start and end probabilities, UnQover's
            source records or LEI's records with start-end-score.
        data: with --checkpoint: groups in LEI's or UnQover's format, or stories:SPLIT; each set on its own,
            with its advice and without. Where contexts decide (LEI's specified set), the questions are
            answered too, for accuracy.
        limit: with --checkpoint: at most N groups of each class in a data set, evenly spread, and their
            questions without advice; 0 for all.
        clusters: lists of subjects with their clusters, as UnQover's `[subj] female | Mary`; adds gamma and
            eta of one cluster against the others, also by attribute (UnQover's gender table). By default
            the clusters that the ids of UnQover's predictions name.
        planted_seed: correlate gamma with the strengths that lei_planted draws from this seed.
        asking: how models are asked.
    """
    if bool(checkpoint) == bool(predictions):
        raise ValueError("name either --checkpoint or --predictions")
    if bool(checkpoint) != bool(data) or (limit and not checkpoint):
        raise ValueError("--checkpoint needs --data, the groups; --data and --limit go with --checkpoint")
    import pandas as pd

    from data_modules.sources import read_groups
    from evaluation.protocols.bias import groups, views
    from evaluation.protocols.bias.measures import add_bias

    named = named_sources(checkpoint or predictions or [], "--checkpoint")
    sets: dict[str, list[Group]] = {}
    about: dict[str, Any] = {}
    if predictions:
        read = {name: groups.read_predictions(Path(path)) for name, path in named.items()}
        frame = pd.concat(read, names=["checkpoint"]).reset_index("checkpoint")
    else:
        from data_modules.groups.advice import spread, with_unadvised

        for name, source in named_sources(data or [], "--data").items():
            found = list(read_groups(source))
            sets[name] = with_unadvised(spread(found, limit) if limit else found)
        frame = groups.group_frame(groups.group_row(group, name) for name in sets for group in sets[name])
    if clusters:
        frame = groups.with_clusters(frame, clusters)
    if checkpoint:
        from evaluation.protocols.bias.asked import ask_all

        frame, about = ask_all(named, frame, sets, asking)
    results = Results(views.BIAS.by, views.BIAS.units)
    for name, rows in frame.assign(unit=frame["key"]).groupby("data", sort=False):
        frames, place = dict(iter(rows.groupby("checkpoint", sort=False))), {"data": str(name)}
        add_bias(results, frames, place, planted_seed)
        if (rows["class"] != "none").any():
            from evaluation.protocols.bias.effects import add_effects

            add_effects(results, frames, place)
    report = views.BIAS.report(results, [*groups.example_rows(frame)], list(named), about)
    headline = report.headline + views.little_mass(results.frame, list(named)[-1])
    return replace(report, headline=headline, views=[*report.views, views.cluster_table(results.frame)])
