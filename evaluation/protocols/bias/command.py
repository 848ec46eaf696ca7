"""Group bias of checkpoints, or of predictions made by anything (UnQover's and LEI's measures).

python -m evaluation bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json --output DIR
python -m evaluation bias --checkpoint uqa=hf:allenai/unifiedqa-t5-base --data dev.json --output DIR
python -m evaluation bias --predictions before=A.json after=B.json --output DIR
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from data_modules.schema import Group, QAExample
from evaluation.answering.interface import Asking, source_name
from evaluation.answering.interface import named_sources as sources_by_name
from evaluation.failures import answered_rows, failure_note, warn_of_silence
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from storage.command_line import Named
from storage.errors import DataError

if TYPE_CHECKING:
    from evaluation.answering.interface import Answerer
    from evaluation.protocols.bias.measures import ScoredGroups

Source = Annotated[str, "[NAME=]SOURCE"]


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[Annotated[str, "[NAME=]FILE"]] | None = None,
    data: list[Source] | None = None,
    qa: Annotated[str, "SOURCE"] | None = None,
    format: Literal["auto", "unqover", "lei"] = "auto",
    skip_bad: bool = False,
    advised_only: bool = False,
    clusters: list[Path] | None = None,
    planted_seed: int | None = None,
    planted_scope: Literal["category", "subject"] = "category",
    asking: Asking = Asking(prompt="unifiedqa"),  # noqa: B008  frozen
) -> Evaluation:
    """Group bias: gamma, eta, mu and their relatives, by class of advice.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a local language model (hf:PATH).
        predictions: in place of checkpoints: files with the subjects' start and end probabilities.
        data: with --checkpoint: groups in LEI's or UnQover's format, or stories:SPLIT; each set on its own.
        qa: with --checkpoint: questions about a text, from any source, for EM and F1.
        format: of predictions: UnQover's source records with start and end filled in, LEI's with
            start-end-score, or told from the content.
        skip_bad: leave out inconsistent records and say how many there were.
        advised_only: do not score the groups without their advice too (class none).
        clusters: lists of subjects with their clusters, as UnQover's `[subj] female | Mary`; adds gamma and
            eta of one cluster against the others.
        planted_seed: correlate gamma with the strengths that lei_planted draws from this seed.
        planted_scope: with --planted-seed: model.planted_scope of that run.
        asking: how models are asked.
    """
    if bool(checkpoint) == bool(predictions):
        raise ValueError("name either --checkpoint or --predictions")
    if predictions:
        for flag, value in (("data", data), ("qa", qa), ("planted-seed", planted_seed is not None)):
            if value:
                raise ValueError(f"--{flag} goes with --checkpoint, not with --predictions")
        if advised_only:
            raise ValueError("--advised-only goes with --checkpoint, not with --predictions")
    elif not data:
        raise ValueError("--checkpoint needs --data: the groups to predict")
    from evaluation.protocols.bias.measures import BY, add_bias, add_planted, example_rows
    from evaluation.protocols.bias.views import figures, headline, notes, views

    settings = {"skip_bad": skip_bad, "clusters": [source_record(str(path)) for path in clusters or []]}
    cluster_of = read_clusters(clusters or [])
    results, answered = Results(BY, "groups"), list[dict[str, Any]]()
    about: dict[str, Any]
    if predictions:
        named = sources_by_name(predictions, "--predictions")
        scored = list(read_scored(named, format, skip_bad))
        inputs = {name: source_record(path) for name, path in named.items()}
        about = {"protocol": "bias", "predictions": inputs, "format": format, **settings}
    else:
        from evaluation.answering.prompts import prompt_record

        named, sets = sources_by_name(checkpoint or [], "--checkpoint"), sources_by_name(data or [], "--data")
        scored, answered = ask_all(named, sets, qa, skip_bad, advised_only, asking)
        about = {
            "protocol": "bias",
            "checkpoints": {name: source_record(path) for name, path in named.items()},
            "data": {name: source_record(path) for name, path in sets.items()},
            "qa": source_record(qa) if qa else None,
            **settings,
            "advised_only": advised_only,
            "planted_seed": planted_seed,
            "planted_scope": planted_scope,
            "precision": asking.precision,
            "unknown_threshold": asking.unknown_threshold,
            "type_threshold": asking.type_threshold,
            **prompt_record(named.values(), asking),
        }
    add_bias(results, scored, cluster_of)
    if answered:
        results.add_means(answered, ("em", "f1"), unit="id", by=("checkpoint", "data"))
        results.add_means(answered_rows(answered), ("failed",), unit="id", by=("checkpoint", "data"))
    if planted_seed is not None:
        for one in scored:
            add_planted(results, one, planted_seed, planted_scope)
    return Evaluation(
        title="Group bias",
        results=results,
        views=views(results),
        about=about,
        headline=headline(results),
        notes=[*notes("prompt" in about), *failure_note(answered, "ordinary questions")],
        figures=figures(results),
        examples=(row for one in scored for row in example_rows(one)),
        console=2 if answered else 1,
    )


def read_scored(
    named: Mapping[str, str], form: Literal["auto", "unqover", "lei"], skip_bad: bool
) -> Iterator[ScoredGroups]:
    """The groups and scores of prediction files; a file's name stands for who made them."""
    from evaluation.protocols.bias.measures import ScoredGroups
    from evaluation.protocols.bias.predictions import read_predictions

    for name, path in named.items():
        table, score_NVS = read_predictions(Path(path), form, skip_bad=skip_bad)
        yield ScoredGroups({"checkpoint": name, "data": ""}, table, score_NVS)


def ask_all(
    checkpoints: Mapping[str, str],
    data: Mapping[str, str],
    qa: str | None,
    skip_bad: bool,
    advised_only: bool,
    asking: Asking,
) -> tuple[list[ScoredGroups], list[dict[str, Any]]]:
    """Every checkpoint's scores of every data set, by data set, and its answers to ordinary questions."""
    from data_modules.sources import read_questions
    from evaluation.answering.open import check_can_score, open_answerer
    from evaluation.protocols.bias.measures import GroupTable, ScoredGroups

    for path in checkpoints.values():
        check_can_score(path, "subjects")  # before anything is loaded
    sets = {name: load_groups(path, not advised_only, skip_bad) for name, path in data.items()}
    questions = list(read_questions(qa, skip_bad=skip_bad)) if qa else []
    tables = {name: GroupTable.of(groups) for name, groups in sets.items()}
    scored: dict[tuple[str, str], ScoredGroups] = {}
    rows: list[dict[str, Any]] = []
    for name, path in checkpoints.items():
        answerer = open_answerer(path, asking, need="subjects")
        if qa:
            rows += answer_rows(answerer, questions, {"checkpoint": name, "data": source_name(qa)})
        for set_name, groups in sets.items():
            score_NVS = answerer.subject_scores(groups, f"scoring {set_name} with {name}")
            if not bool(score_NVS.isfinite().all()):
                raise ValueError(f"{path}: a score of {set_name} is not a finite number")
            cell = {"checkpoint": name, "data": set_name}
            scored[set_name, name] = ScoredGroups(cell, tables[set_name], score_NVS)
    warn_of_silence(rows, checkpoints)
    return [scored[set_name, name] for set_name in sets for name in checkpoints], rows


def load_groups(source: str, watch_unadvised: bool, skip_bad: bool) -> list[Group]:
    """The groups of a source, and, unless it has unadvised ones, the same without advice as class `none`."""
    from data_modules.groups.advice import with_unadvised
    from data_modules.sources import read_groups

    groups = list(read_groups(source, skip_bad=skip_bad))
    if not groups:
        raise DataError(f"{source}: holds no groups")
    return with_unadvised(groups) if watch_unadvised else groups


def answer_rows(
    answerer: Answerer, questions: Sequence[QAExample], cell: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """EM and F1 of the answer to each question, or why there is none."""
    from metrics.answers import score_answer, scoring_of

    for answer in answerer.answers(questions, f"answering with {cell['checkpoint']}"):
        question = questions[answer.example]
        if answer.failure:
            yield {**cell, "id": question.id, "failure": answer.failure}
        else:
            em, f1 = score_answer(answer.text, question.gold, scoring_of(question.dataset))
            yield {**cell, "id": question.id, "em": em, "f1": f1}


def read_clusters(paths: Sequence[Path]) -> dict[str, str]:
    """Subject, as in keys, to its cluster.

    Raises:
        DataError: a list without clusters, or a subject in two of them.
    """
    from data_modules.groups.word_lists import NO_CLUSTER, read_subjects

    cluster_of: dict[str, str] = {}
    for path in paths:
        for subject in read_subjects(path):
            if subject.cluster == NO_CLUSTER:
                raise DataError(f"--clusters {path}: {subject.name!r} has no cluster ([subj] CLUSTER | NAME)")
            name = subject.name.lower()
            if cluster_of.setdefault(name, subject.cluster) != subject.cluster:
                raise DataError(
                    f"--clusters {path}: {subject.name!r} is in {cluster_of[name]} and in {subject.cluster}"
                )
    return cluster_of


def named_sources(arguments: Sequence[str], flag: str) -> list[tuple[str, str]]:
    """For the protocols that have not moved to the long table yet."""
    return list(sources_by_name(arguments, flag).items())
