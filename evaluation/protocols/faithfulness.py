"""Do models still answer when the text no longer supports an answer? The faithfulness paper's Tables 4 and 5.

interventune evaluate faithfulness --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
interventune evaluate faithfulness --checkpoint gpt=openai:gpt-4o-mini --data os.jsonl ts_r.jsonl --output DIR
interventune evaluate faithfulness --predictions gpt=answers.jsonl --data os.jsonl ts_r.jsonl --output DIR
interventune evaluate faithfulness --checkpoint A.ckpt --data coqa.json --variants reformatted --output DIR
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from data_modules.schema import DELETED, REFORMATTED, QAExample
from evaluation.answering.interface import Answerer, AnswerFile, Asking, named_answerers
from evaluation.figures import Bars
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.report import Evaluation
from evaluation.variants import VariantOptions, read_stories
from evaluation.views import View
from storage.command_line import Named

log = logging.getLogger(__name__)

NOTE = (
    "Predictions are compared with the human answers to the original story (`os`). `ts` ends the story after "
    "the rationale; `ts_r` and `os_r` delete the rationale and put the bare answer at the end where the rest "
    "of the story lacks it, `_aug` a sentence that contains it: there EM and F1 measure *old answers*, which "
    "nothing in the text supports, and a faithful model says unknown (unk%). `reworded`, `quoted`, `spaced` "
    "and `reformatted` keep the meaning: *same answer* is the share of questions that get the answer that "
    "the same model gives to the original, right or wrong."
)
FAITHFULNESS = Protocol(
    title="Semantic faithfulness",
    unit="id",
    by=("variant", "answer_type", "domain"),
    cells=[("variant",), ("variant", "answer_type"), ("variant", "domain")],
    measures={"f1": "F1", "em": "EM", "unknown": "unk%", "consistency": "same answer"},
    views=[
        View("By variant", ("variant",)),
        View("By type of the original answer", ("variant", "answer_type")),
        View("By domain", ("variant", "domain")),
    ],
    figures={
        "faithfulness.png": Bars(
            x="variant",
            measures={"em": "EM", "unknown": "says unknown"},
            label="% of questions",
            x_label="ts_r, os_r and _aug: rationale deleted, EM is the share of old answers",
        )
    },
    headline=[
        Said("unknown", "unknown when the evidence is deleted", variant=DELETED),
        Said("em", "old answers there", variant=DELETED),
        Said("em", "right on the original stories", variant="os"),
        Said("consistency", "same answer where the meaning is the same", variant=REFORMATTED),
    ],
    good="unknown in place of old answers where the evidence is deleted, as many right answers elsewhere",
)


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[AnswerFile] | None = None,
    variants: VariantOptions,
    asking: Asking,
) -> Evaluation:
    """F1, exact match and the share of unknown by variant of the story.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        predictions: beside checkpoints or in their place: rows with id, variant and answer.
        variants: which data in which variants.
        asking: how models are asked.
    """
    from metrics.answers import reference_note

    named = named_answerers(checkpoint, predictions)
    if variants.variants and REFORMATTED & {*variants.variants}:  # `os` is what answers are compared with
        variants = replace(variants, variants=[*dict.fromkeys(["os", *variants.variants])])
    data = read_stories(variants)
    sets, originals = data.examples(), {example.id: example for example in data.originals}
    types = {example.answer_type for examples in sets.values() for example in examples}

    def rows(answerer: Answerer) -> Iterator[dict[str, Any]]:
        answerer.may_abstain = "unknown" in types
        answer_to_original: dict[str, str] = {}
        for variant, examples in sets.items():
            for answer in sorted(answerer.answers(examples, f"asking {variant}")):
                example = examples[answer.example]
                row = described(example, originals.get(example.id, example)) | {"prediction": answer.text}
                if answer.failure:
                    yield row | {"failure": answer.failure}
                    continue
                if variant == "os":
                    answer_to_original[example.id] = answer.text
                yield row | scores(example, answer.text, answer_to_original.get(example.id))

    note = reference_note((data.dataset, len(e.gold)) for examples in sets.values() for e in examples)
    if note:
        log.warning(note)
    protocol = replace(
        FAITHFULNESS,
        title=f"Semantic faithfulness on {data.dataset or 'this data'}",
        notes=[NOTE, data.rejection_note(), note],
    )
    return protocol.run(rows, named, asking, need="types" if types & {"yes", "no"} else "spans")


def described(example: QAExample, original: QAExample) -> dict[str, Any]:
    """The question, and its story as edited: the original, the character offsets of what the variant left out
    of it, and what it appends. Where the original is not known, or edited all over, the story is the
    variant's own, and nothing of it is deleted."""
    story, kept = original.context, example.kept
    edits: dict[str, Any] = {"story": example.context, "deleted": [], "appended": ""}
    if example is not original and kept:
        ends = [(0, 0), *kept, (len(story), len(story))]
        deleted = [[left[1], right[0]] for left, right in pairwise(ends) if left[1] < right[0]]
        appended = example.context.removeprefix("".join(story[start:end] for start, end in kept))
        edits = {"story": story, "deleted": deleted, "appended": appended}
    return {
        "variant": example.variant,
        "id": example.id,
        "answer_type": original.answer_type,
        "domain": example.domain,
        "question": example.question,
        "advice": example.advice,
        **edits,
        "references": list(example.gold),
    }


def scores(example: QAExample, prediction: str, answer_to_original: str | None) -> dict[str, Any]:
    """EM, F1, unknown, and whether it is right; of reformatted questions also whether it is the answer to the
    original."""
    from data_modules.interventions.reformatting import straight_quotes
    from metrics.answers import is_unknown, same_answer, score_answer, scoring_of

    gold, same = example.gold, {}
    if example.variant in REFORMATTED:
        prediction, gold = straight_quotes(prediction), tuple(map(straight_quotes, gold))
        if answer_to_original is not None:
            same = {"consistency": same_answer(prediction, straight_quotes(answer_to_original))}
    em, f1 = score_answer(prediction, gold, scoring_of(example.dataset))
    unknown = is_unknown(prediction)
    right = unknown if example.variant in DELETED else em == 1
    return {"em": em, "f1": f1, "unknown": unknown, "right": right, **same}
