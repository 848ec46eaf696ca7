"""Group bias of checkpoints, or of scores made elsewhere (UnQover's and LEI's measures).

interventune evaluate bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json --output DIR
interventune evaluate bias --checkpoint uqa=hf:allenai/unifiedqa-t5-base --data dev.json --output DIR
interventune evaluate bias --predictions before=A.json after=B.json --output DIR
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evaluation.answering.interface import LANGUAGE_MODELS, Answerer, Asking, named_sources
from evaluation.report import Evaluation
from evaluation.results import Results
from storage.command_line import AtLeast, Named

if TYPE_CHECKING:
    from pandas import DataFrame

    from data_modules.schema import Group
    from evaluation.protocols.bias.groups import Frames


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[Annotated[str, "[NAME=]FILE"]] | None = None,
    data: list[Annotated[str, "[NAME=]SOURCE"]] | None = None,
    limit: Annotated[int, AtLeast(0)] = 0,
    skip_bad: bool = False,
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
        skip_bad: leave out inconsistent records and say how many there were.
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
    from evaluation.protocols.bias import views
    from evaluation.protocols.bias.effects import add_effects
    from evaluation.protocols.bias.groups import example_rows, read_predictions, with_clusters
    from evaluation.protocols.bias.measures import add_bias, add_planted

    named, about = named_sources(checkpoint or predictions or [], "--checkpoint"), dict[str, Any]()
    if predictions:
        found = {name: read_predictions(Path(path), skip_bad=skip_bad) for name, path in named.items()}
        scored: dict[str, Frames] = {"": with_clusters(found, clusters) if clusters else found}
    else:
        sets = read_sets(named_sources(data or [], "--data"), limit, skip_bad=skip_bad)
        scored, about = ask_all(named, sets, clusters, asking)
    results = Results(views.BIAS.by, views.BIAS.units)
    for name, frames in scored.items():
        add_bias(results, frames, {"data": name})
        add_effects(results, frames, {"data": name})
        if planted_seed is not None:
            add_planted(results, frames, planted_seed, {"data": name})
    model = any(path.startswith(LANGUAGE_MODELS) for path in named.values())
    failures = [*example_rows(scored, failed=True)]
    evaluation = views.report(results, list(named), failures, about, language_model=model)
    return replace(evaluation, examples=example_rows(scored))


def read_sets(sources: Mapping[str, str], limit: int, *, skip_bad: bool) -> dict[str, list[Group]]:
    """The groups of each data set, and the same without advice unless some have none."""
    from data_modules.groups.advice import spread, with_unadvised
    from data_modules.sources import read_groups

    sets = {name: list(read_groups(source, skip_bad=skip_bad)) for name, source in sources.items()}
    return {name: with_unadvised(spread(groups, limit) if limit else groups) for name, groups in sets.items()}


def ask_all(
    named: Mapping[str, str],
    sets: Mapping[str, Sequence[Group]],
    clusters: Sequence[str] | None,
    asking: Asking,
) -> tuple[dict[str, Frames], dict[str, Any]]:
    """The scored groups of every data set by checkpoint, and `about` of the checkpoints."""
    from evaluation.frame import ask_each
    from evaluation.protocols.bias.groups import group_frame, with_answers, with_clusters, with_scores

    frames = {name: group_frame(groups) for name, groups in sets.items()}
    if clusters:
        frames = with_clusters(frames, clusters)

    def ask(checkpoint: str, answerer: Answerer) -> dict[str, DataFrame]:
        found = {}
        for name, groups in sets.items():
            score_NVS = answerer.subject_scores(groups, f"scoring {name} with {checkpoint}")
            frame = with_scores(frames[name], score_NVS)
            if answerer.offers_unknown:
                frame = frame.assign(unknown=1 - frame["mass"])
            found[name] = with_answers(frame, groups, answerer, f"answering {name} with {checkpoint}")
        return found

    found, about = ask_each(ask, named, asking, need="subjects")
    return {name: {who: asked[name] for who, asked in found.items()} for name in sets}, about
