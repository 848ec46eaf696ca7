"""What a multiple-choice model believes before it reads the question, and how many choices it can take.

interventune evaluate confusion --checkpoint A.ckpt --input piqa/valid.jsonl --labels piqa/valid-labels.lst \
    --output DIR
interventune evaluate confusion --checkpoint plain=A.ckpt probed=B.ckpt --input rows.jsonl \
    --probes no-question choice-paralysis --choices 5 --sampling random --output DIR
interventune evaluate confusion --checkpoint uqa=hf:allenai/unifiedqa-t5-base \
    --input hub:baber/piqa:validation --sampling random --choices 5 --trials 3 --drawn-only --output DIR
interventune evaluate confusion --checkpoint A.ckpt --input piqa=piqa/valid.jsonl+piqa/valid-labels.lst \
    anli=anli/dev.jsonl+anli/dev-labels.lst --output DIR

Choices scored elsewhere:

interventune evaluate confusion-questions --input rows.jsonl --sampling random --output questions.jsonl
interventune evaluate confusion --predictions gpt=scored.jsonl --input rows.jsonl --sampling random \
    --output DIR

Probes spec B3 to B6. Probes: data_modules/choices/probes.py; readers: data_modules/choices/benchmarks.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from evaluation.answering.interface import (
    ANSWERS,
    LANGUAGE_MODELS,
    AnswerFile,
    ChoicePrompt,
    Compute,
    named_answerers,
    named_sources,
)
from evaluation.processes import finished_work
from evaluation.report import Evaluation, source_record
from storage.command_line import AtLeast, Count
from storage.errors import DataError
from storage.files import refuse_existing
from storage.json_files import write_json_lines

if TYPE_CHECKING:
    from data_modules.schema import ChoiceQuestion
    from evaluation.protocols.confusion.trials import Plan, Trial
    from storage.finished_work import FinishedWork

ProbeName = Literal["no-question", "wrong-question", "no-right-answer", "choice-paralysis"]
Sampling = Literal["random", "heuristic"]
Benchmark = Literal["auto", "piqa", "anli", "socialiqa", "hellaswag", "bbq", "rows"]


@dataclass(frozen=True)
class Probing:
    """What is asked

    Args:
        input: questions: a file of a benchmark or of rows (as PATH+LABELS too), hub:NAME:SPLIT,
            stories:choices_dev; several benchmarks in one report.
        labels: their labels, where these stand in a file of their own (of one input).
        benchmark: demand this format; auto tells it from the fields.
        limit: use the first N questions only; 0 for all.
        probes: which probes (default: all).
        no_shared_words: wrong questions, and substitutes of right answers, have no word in common with what
            they replace.
        trials: of each probe with random texts.
        seed: of the first trial.
        choices: choice paralysis: numbers of choices (default: 5 10 15).
        sampling: choice paralysis: whether wrong choices are those of any other questions, or of the most
            similar ones (default: both).
        similar_by: heuristic sampling: whose similarity to the prompt counts.
        encoder: heuristic sampling: whose sentence embeddings: a .ckpt of multiple_choice, a Hugging Face
            folder or a Hub name (default: those of the model that is probed).
        instances: choice paralysis: questions drawn in each trial.
        drawn_only: ask every probe, and the originals, about the drawn questions only: the paper's way with
            UnifiedQA, with --trials 3.
    """

    input: list[Annotated[str, "[NAME=]SOURCE"]]
    labels: Annotated[str, "FILE"] = ""
    benchmark: Benchmark = "auto"
    limit: Annotated[int, AtLeast(0)] = 0
    probes: list[ProbeName] | None = None
    no_shared_words: bool = False
    trials: Count = 5
    seed: Annotated[int, AtLeast(0)] = 0
    choices: list[Annotated[int, AtLeast(2)]] | None = None
    sampling: list[Sampling] | None = None
    similar_by: Literal["prompts", "choices"] = "prompts"
    encoder: Annotated[str, "PATH"] = ""
    instances: Annotated[int, AtLeast(2)] = 50
    drawn_only: bool = False

    def plan(self) -> Plan:
        """The same for the trials; ValueError for options that no probe takes."""
        from data_modules.choices.probes import Probe
        from evaluation.protocols.confusion.trials import Plan

        wanted = {name.replace("-", "_") for name in self.probes or get_args(ProbeName)}
        sampling = self.sampling or get_args(Sampling)
        plan = Plan(
            probes=tuple(probe for probe in get_args(Probe) if probe in wanted),
            trials=self.trials,
            seed=self.seed,
            no_shared_words=self.no_shared_words,
            choices=tuple(sorted(set(self.choices or (5, 10, 15)))),
            sampling=tuple(kind for kind in get_args(Sampling) if kind in sampling),
            similar_by=self.similar_by,
            instances=self.instances,
            drawn_only=self.drawn_only,
        )
        if plan.no_shared_words and not {"wrong_question", "no_right_answer"}.intersection(plan.probes):
            raise ValueError("--no-shared-words goes with --probes wrong-question or no-right-answer")
        return plan


def evaluate(
    *,
    checkpoint: list[Annotated[str, "[NAME=]PATH[@BENCHMARK]"]] | None = None,
    predictions: list[AnswerFile] | None = None,
    probing: Probing,
    prompt: ChoicePrompt = "auto",
    likelihood: Literal["mean", "sum"] = "mean",
    compute: Compute,
    work: Path | None = None,
) -> Evaluation:
    """Prior bias and choice paralysis: how models choose once the question, or the right choice, is gone.

    Args:
        checkpoint: a .ckpt of the experiment multiple_choice or of a decoder, a Hugging Face folder or a Hub
            name (of an encoder: a head of random weights), or a language model (hf:PATH, or an endpoint,
            openai:MODEL@URL, that gives log-probabilities); with @BENCHMARK, the name of an input, asked
            about that one only: one NAME may have a checkpoint for each.
        predictions: beside checkpoints or in their place: choices scored elsewhere, rows with prompt, choices
            and scores (`interventune evaluate confusion-questions` writes what is asked).
        probing: what is asked.
        prompt: language models. plain, question: each choice alone behind the question; question is
            lm-evaluation-harness's way with PIQA (with --likelihood sum), without a chat template. unifiedqa
            lists the choices as UnifiedQA was trained. letters lists them too, and the letter is the answer,
            averaged over all cyclic orders. auto: unifiedqa for sequence-to-sequence models, else plain.
        likelihood: language models: of the log-probabilities of a choice's tokens.
        compute: how models run.
        work: finished pieces of work, from which the same command goes on (default: OUTPUT.work.jsonl).
    """
    import numpy as np

    from data_modules.choices.benchmarks import split_labels
    from evaluation.answering.open import open_chooser
    from evaluation.answering.remembered import remembered_logits
    from evaluation.protocols.confusion.measures import TrialAnswers
    from evaluation.protocols.confusion.trials import similar_trials
    from evaluation.protocols.confusion.views import report
    from metrics.confusion import confidences

    if predictions or not checkpoint:
        named_answerers(None, predictions)
    plan, encoder = probing.plan(), probing.encoder
    inputs = named_inputs(probing)
    sets = {name: questions for name, (_, questions) in inputs.items()}
    named = answerers_of([*(checkpoint or []), *(predictions or [])], list(sets))
    fixed = fixed_of(inputs, plan)
    most = max(plan.choices) if "choice_paralysis" in plan.probes else 0
    pairs = [(name, path) for name, by_set in named.items() for path in dict.fromkeys(by_set.values())]
    for path in (*(path for _, path in pairs), *([encoder] if encoder else [])):
        if not path.endswith(ANSWERS):
            check_model(path, prompt, most=most, embeds=plan.embeds and encoder in ("", path))
    if predictions and plan.embeds and not encoder:
        raise ValueError(
            "--predictions: heuristic sampling needs sentence embeddings; name the --encoder that the scored "
            "questions were made with, or ask for --sampling random"
        )
    outcomes: list[TrialAnswers] = []
    identities: dict[str, dict[str, Any]] = {}
    finished = finished_work(work)
    shared = shared_trials(sets, plan, encoder, compute, finished)
    for name, path in pairs:
        answerer = open_chooser(path, compute, prompt=prompt, likelihood=likelihood)
        identities[path] = answerer.identity
        for on, questions in sets.items():
            if named[name].get(on) != path:
                continue
            similar = shared.get(on, [])
            if plan.embeds and not encoder:
                similar = similar_trials(questions, plan, answerer, finished)
            for trial in (*fixed[on], *similar):
                what = f"{name}: {on} {trial.title}".replace("  ", " ")
                if path.endswith(ANSWERS):  # nothing to remember
                    logit_PC = np.stack(list(answerer.choice_logits(trial.questions, what)))
                else:
                    logit_PC = remembered_logits(answerer, trial.questions, finished, what)
                confidence = confidences(logit_PC)
                if confidence.ndim == 3:
                    outcomes.append(TrialAnswers(name, trial, confidence.mean(1), on, confidence))
                else:
                    outcomes.append(TrialAnswers(name, trial, confidence, on))
        del answerer  # before the next one needs its memory
    about = {
        "protocol": "confusion",
        "checkpoints": {
            name: [
                {
                    **source_record(path),
                    "model": identities[path],
                    "on": [on for on in sets if by_set.get(on) == path],
                }
                for path in dict.fromkeys(by_set.values())
            ]
            for name, by_set in named.items()
        },
        "input": {name: source for name, (source, _) in inputs.items()},
        "sources": [
            source_record(part)
            for source, _ in inputs.values()
            for part in split_labels(source, probing.labels)
            if part and Path(part).is_file()
        ],
        "benchmark": {name: questions[0].benchmark or "rows" for name, questions in sets.items()},
        "limit": probing.limit,
        "n": {name: len(questions) for name, questions in sets.items()},
        **asdict(plan),
        "encoder": source_record(encoder) if encoder else None,
        "dtype": compute.dtype,
    }
    return report(sets, plan, outcomes, about)


def write_questions(
    *,
    probing: Probing,
    output: Annotated[Path, "FILE"],
    overwrite: bool = False,
    compute: Compute,
) -> None:
    """What confusion asks, as rows to score elsewhere: add `scores`, one number for each choice, to every
    row, and give the file to `confusion --predictions` with the same flags.

    Args:
        probing: what is asked; heuristic sampling needs --encoder.
        output: file to write.
        overwrite: replace the output if it exists.
        compute: how the encoder runs.
    """
    from storage.finished_work import FinishedWork

    refuse_existing(output, overwrite=overwrite)
    plan, inputs = probing.plan(), named_inputs(probing)
    if plan.embeds and not probing.encoder:
        raise ValueError("heuristic sampling needs sentence embeddings: add --encoder, or --sampling random")
    sets, trials = {name: questions for name, (_, questions) in inputs.items()}, fixed_of(inputs, plan)
    similar = shared_trials(sets, plan, probing.encoder, compute, FinishedWork(None))
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for on in sets:
        for trial in (*trials[on], *similar.get(on, [])):
            for question in trial.questions:
                row = {"prompt": question.prompt, "choices": question.choices, "id": question.id}
                key = (question.prompt, *question.choices)
                rows.setdefault(key, {**row, **trial.cell, "trial": trial.number})
    print(f"{output}: {write_json_lines(output, rows.values())} different questions")


def fixed_of(inputs: Mapping[str, tuple[str, list[ChoiceQuestion]]], plan: Plan) -> dict[str, list[Trial]]:
    """The trials of each input that depend on no model; DataError names the input."""
    from evaluation.protocols.confusion.trials import fixed_trials

    fixed: dict[str, list[Trial]] = {}
    for name, (source, questions) in inputs.items():
        try:
            fixed[name] = fixed_trials(questions, plan)
        except DataError as error:
            raise DataError(f"{source}: {error}") from None
    return fixed


def shared_trials(
    sets: Mapping[str, list[ChoiceQuestion]], plan: Plan, encoder: str, compute: Compute, work: FinishedWork
) -> dict[str, list[Trial]]:
    """The trials of heuristic sampling by the embeddings of --encoder; none without one."""
    if not encoder or not plan.embeds:
        return {}
    from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
    from evaluation.protocols.confusion.trials import similar_trials

    embedder = ChoiceCheckpoint(encoder, compute)
    return {on: similar_trials(questions, plan, embedder, work) for on, questions in sets.items()}


def answerers_of(arguments: Sequence[str], benchmarks: Sequence[str]) -> dict[str, dict[str, str]]:
    """By name, whom each benchmark is asked of: `[NAME=]PATH[@BENCHMARK]`. ValueError for a second one."""
    found: dict[str, dict[str, str]] = {}
    for argument in arguments:
        path, at, on = argument.rpartition("@")
        alone = bool(at and on) and on in benchmarks
        ((name, source),) = named_sources([path if alone else argument], "--checkpoint").items()
        for benchmark in [on] if alone else benchmarks:
            if benchmark in found.setdefault(name, {}):
                again = f" for {benchmark}" if benchmark else ""
                raise ValueError(f"--checkpoint: two are called {name!r}{again}; write NAME=PATH")
            found[name][benchmark] = source
    return found


def named_inputs(probing: Probing) -> dict[str, tuple[str, list[ChoiceQuestion]]]:
    """Source and questions of each `[NAME=]SOURCE`. One without a name is called "" if there is no other,
    else after its benchmark. ValueError for two of one name, and for --labels beside several."""
    from data_modules.sources import read_choices

    arguments, labels = probing.input, probing.labels
    if labels and len(arguments) > 1:
        raise ValueError("--labels goes with one --input; write PATH+LABELS for each of several")
    found: dict[str, tuple[str, list[ChoiceQuestion]]] = {}
    for argument in arguments:
        ((name, source),) = named_sources([argument], "--input").items()
        questions = read_choices(source, labels=labels, benchmark=probing.benchmark)[: probing.limit or None]
        if source == argument:
            name = "" if len(arguments) == 1 else (questions[0].benchmark if questions else "") or name
        if name in found:
            raise ValueError(f"--input {argument}: another one is called {name!r}; write NAME={source}")
        found[name] = source, questions
    return found


def check_model(path: str, prompt: ChoicePrompt, *, most: int, embeds: bool) -> None:
    """Before any work: ValueError for an endpoint that cannot score, a checkpoint that cannot choose, a
    language model where embeddings are needed, or one whose wording has no letters for `most` choices."""
    from evaluation.answering.open import is_decoder, open_chooser
    from evaluation.answering.prompts import CHOICE_WORDINGS, check_letters
    from models.checkpoint import inspect
    from models.heads.choice import ChoiceModel
    from models.language.local_model import model_config

    if not path.startswith(LANGUAGE_MODELS) and not is_decoder(path):
        inspect(path).require_kind(ChoiceModel)
        return
    if embeds:
        raise ValueError(
            f"{path}: heuristic sampling needs sentence embeddings, which a language model does not give; "
            "name an --encoder, or ask for --sampling random"
        )
    seq2seq = False
    if path.startswith("hf:"):
        seq2seq = getattr(model_config(path.removeprefix("hf:")), "is_encoder_decoder", False)
    elif path.startswith("openai:"):
        open_chooser(path, Compute(), prompt=prompt)
    kind = ("unifiedqa" if seq2seq else "plain") if prompt == "auto" else prompt
    check_letters(most, CHOICE_WORDINGS[kind], f"--choices, with {path}")
