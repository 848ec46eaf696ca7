"""A multiple-choice model's beliefs before it reads the question, and its accuracy among many
choices.

Probes spec B3 to B5; data_modules/tasks/confusion_probes.py,
data_modules/questions/multiple_choice.py.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from interventune.evaluation.answering.interface import (
    KINDS,
    Answerer,
    Choosing,
    kind_of,
    named_sources,
    open_answerer,
)
from interventune.evaluation.report import Evaluation
from interventune.storage.command_line import Named

from .trials import (
    Probing,
    fixed_trials,
    paralysis_trials,
)


def evaluate(*, checkpoint: list[Named], probing: Probing, asking: Choosing) -> Evaluation:
    """Measure how a model chooses without the question, without the right choice, and among many
    choices.

    Example: interventune evaluate confusion --checkpoint A.ckpt --input piqa.jsonl \\
        --output report

    Args:
        checkpoint: a .ckpt of experiment multiple_choice or of a decoder, a Hugging Face folder or
            Hub name (an encoder gets a random head), a language model (hf:PATH), or an endpoint
            that gives log-probabilities (openai:MODEL[@URL], with --choice-prompt letters).
        probing: data and probes.
        asking: model options.
    """
    from interventune.data_modules.sources import read_choices

    from .measures import answer_rows, tests_and_hits
    from .views import CONFUSION

    named = named_sources(checkpoint, "--checkpoint")
    heuristic = "heuristic" in probing.samplings
    for path in named.values() if heuristic and not probing.encoder else ():
        if "embeddings" not in KINDS[kind_of(path)].abilities:
            raise ValueError(f"{path}: gives no embeddings; add --encoder, or --sampling random")
    questions = read_choices(probing.input)[: probing.limit or None]
    trials = fixed_trials(questions, probing)
    if heuristic and probing.encoder:
        encoder = open_answerer(probing.encoder, asking, need="embeddings")
        trials += paralysis_trials(questions, probing, encoder.embeddings)
        del encoder

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        own = []
        if heuristic and not probing.encoder:
            own = paralysis_trials(questions, probing, answerer.embeddings)
        return answer_rows(answerer, questions, [*trials, *own])

    count = len(questions[0].choices)
    chance = 1 / count
    note = (
        f"{len(questions)} questions with {count} choices: guessing is right in {chance:.3f} of "
        "them."
    )
    protocol = replace(CONFUSION, notes=[note], also=[partial(tests_and_hits, chance=chance)])
    return protocol.run(rows, named, asking, need="choices")
