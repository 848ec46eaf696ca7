"""What a multiple-choice model believes before it reads the question, and how many choices it can take.

interventune evaluate confusion --checkpoint A.ckpt --input piqa/dev.jsonl+piqa/dev-labels.lst --output DIR
interventune evaluate confusion --checkpoint plain=A.ckpt probed=B.ckpt --input rows.jsonl \
    --probes no_question choice_paralysis --choices 5 --sampling random --output DIR
interventune evaluate confusion --checkpoint uqa=hf:allenai/unifiedqa-t5-base \
    --input hub:baber/piqa:validation --sampling random --choices 5 --trials 3 --instances 50 --output DIR

Probes spec B3 to B5; data_modules/tasks/confusion_probes.py, data_modules/questions/multiple_choice.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evaluation.answering.asking import named_sources
from evaluation.answering.interface import Answerer, Choosing, kind_of
from evaluation.protocols.confusion.trials import Probing, fixed_trials, paralysis_trials
from evaluation.report import Evaluation
from evaluation.results import Results, Row
from storage.command_line import Named


def evaluate(*, checkpoint: list[Named], probing: Probing, asking: Choosing) -> Evaluation:
    """Prior bias and choice paralysis: how models choose once the question, or the right choice, is gone.

    Args:
        checkpoint: a .ckpt of the experiment multiple_choice or of a decoder, a Hugging Face folder or a Hub
            name (of an encoder: a head of random weights), or a language model (hf:PATH, or an endpoint,
            openai:MODEL@URL, that gives log-probabilities).
        probing: what is asked.
        asking: how models are asked.
    """
    from data_modules.sources import read_choices
    from evaluation.answering.open import ABILITIES, open_answerer
    from evaluation.protocols.confusion.measures import add_numbers, answer_rows
    from evaluation.protocols.confusion.views import CONFUSION, draw_boxes

    named, answered = named_sources(checkpoint, "--checkpoint"), list[list[dict[str, Any]]]()
    heuristic = "heuristic" in probing.samplings
    for path in named.values() if heuristic and not probing.encoder else ():
        if "embeddings" not in ABILITIES[kind_of(path)]:
            raise ValueError(f"{path}: gives no embeddings; add --encoder, or --sampling random")
    questions = read_choices(probing.input)[: probing.limit or None]
    trials = fixed_trials(questions, probing)
    if heuristic and probing.encoder:
        encoder = open_answerer(probing.encoder, asking, need="embeddings")
        trials += paralysis_trials(questions, probing, encoder.embeddings)
        del encoder

    def rows(answerer: Answerer) -> list[dict[str, Any]]:
        own = []
        if heuristic and not probing.encoder:
            own = paralysis_trials(questions, probing, answerer.embeddings)
        answered.append(list(answer_rows(answerer, questions, [*trials, *own])))
        return answered[-1]

    def more(results: Results, _: Sequence[Row]) -> None:
        for name, answers in zip(named, answered, strict=True):
            add_numbers(results, name, answers, chance)

    count = len(questions[0].choices)
    chance = 1 / count
    note = f"{len(questions)} questions with {count} choices: guessing is right in {chance:.3f} of them."
    protocol = replace(CONFUSION, notes=[note])
    evaluation = protocol.run(rows, named, asking, need="choices", more=more)
    boxes = partial(draw_boxes, evaluation.examples, chance)
    return replace(evaluation, figures={"confidences.png": boxes, **evaluation.figures})
