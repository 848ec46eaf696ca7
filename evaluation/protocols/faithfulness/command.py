"""Do models still answer when the text supports no answer? The faithfulness paper's
Tables 4 and 5.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from math import isnan

from interventune.data_modules.schema.questions import DELETED, REFORMATTED, QAExample, traits
from interventune.evaluation.answering.interface import Ability, Answerer, Asking
from interventune.evaluation.answering.predictions import named_answerers
from interventune.evaluation.protocol import Evaluation, Protocol, Row, Statistic, declared
from interventune.evaluation.variants import VariantOptions, passage, read_stories
from interventune.storage.command_line import Named, NamedFile
from interventune.storage.documents import DataError

from . import abstention

NOTES = (
    ({"os"}, "Answers are compared with the human answers to the original story (`os`)."),
    (
        DELETED,
        "Where the evidence is missing ({}), a faithful model says unknown (unk%); EM and "
        "F1 count *old answers*: a missing answer phrase is appended, but nothing in the "
        "text supports it.",
    ),
    (
        {"swap"},
        "In `swap` the text contradicts what a model may remember: it *follows the text* or "
        "*remembers*.",
    ),
    (
        REFORMATTED,
        "{} keep the meaning; *same answer* is the share of answers equal to those to the "
        "original.",
    ),
)
"""What readers must know about variants."""
DECLARED = declared(__file__)
DECLARED["measures"]["remembers_share"] = Statistic(
    "remembers / both",
    ("em", "remembers"),
    lambda sums_RC: sums_RC[:, 2] / (sums_RC[:, 1] + sums_RC[:, 2]),
    n=lambda sum_C: sum_C[1] + sum_C[2],
    limits=(0, 1),
)
DECLARED["views"].insert(1, abstention.VIEW)
DECLARED["figures"]["coverage.png"] = abstention.FIGURE
FAITHFULNESS = Protocol(also=[abstention.numbers], **DECLARED)


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[NamedFile] | None = None,
    variants: VariantOptions,
    asking: Asking,
) -> Evaluation:
    """Measure F1, exact match and the share of unknown in stories with and without the evidence.

    Example: interventune evaluate faithfulness --checkpoint ot=A.ckpt ibt=B.ckpt --data dev.json \\
        --output DIR

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]). Each is compared with the first. Tables use NAME.
        predictions: answers from elsewhere, with or without --checkpoint: JSON Lines of id,
            variant, answer.
        variants: data and variants.
        asking: model options.
    """
    from interventune.metrics.answers import reference_note

    answerers = named_answerers(checkpoint, predictions)
    if taken := abstention.TRIVIAL.keys() & {one.name for one in answerers}:
        raise DataError(f"{taken.pop()}: a row of every report has this name; choose another")
    if variants.variants and REFORMATTED & {*variants.variants}:  # answers are compared with `os`
        variants = replace(variants, variants=[*dict.fromkeys(["os", *variants.variants])])
    data = read_stories(variants)
    sets = data.examples
    originals = {example.id: example for example in data.originals}
    every = [*chain.from_iterable(sets.values())]
    types = {example.answer_type for example in every}

    def rows(answerer: Answerer) -> Iterator[Row]:
        answerer.may_abstain = "unknown" in types
        answer_to_original: dict[str, str] = {}
        for variant, examples in sets.items():
            for answer in sorted(answerer.answers(examples, f"asking {variant}")):
                example = examples[answer.example]
                row = described(example, originals.get(example.id, example))
                row["prediction"] = answer.text
                if answer.failure:
                    yield row | {"failure": answer.failure}
                    continue
                if variant == "os":
                    answer_to_original[example.id] = answer.text
                row |= scores(example, answer.text, answer_to_original.get(example.id))
                row["unanswerable"] = example.answer_type == "unknown"
                if not isnan(answer.unknown_score):
                    row |= {"unknown_score": answer.unknown_score, "guess": answer.guess}
                    row["guess_f1"] = scores(example, answer.guess, None)["f1"]
                yield row

    note = reference_note((example.dataset, len(example.gold)) for example in every)
    protocol = replace(
        FAITHFULNESS,
        title=f"Semantic faithfulness on {variants.name}",
        notes=[about(sets), data.rejected, note],
    )
    need: Ability = "types" if types & {"yes", "no"} else "spans"
    return protocol.run(rows, answerers, asking, need=need)


def about(variants: Iterable[str]) -> str:
    """Return the notes on the variants."""
    return " ".join(
        note.format(", ".join(f"`{name}`" for name in variants if name in names))
        for names, note in NOTES
        if not names.isdisjoint(variants)
    )


def described(example: QAExample, original: QAExample) -> Row:
    """Return the question, and its original story with the character offsets of what the variant
    left out and the text that it appends; if the original is unknown or edited all over, the
    variant's own story.
    """
    story = example.context
    appended = ""
    deleted = list[list[int]]()
    if example is not original and example.kept:
        story = original.context
        ends = [(0, 0), *example.kept, (len(story), len(story))]
        deleted = [[left[1], right[0]] for left, right in pairwise(ends) if left[1] < right[0]]
        appended = example.context.removeprefix(
            "".join(story[start:end] for start, end in example.kept)
        )
    return {
        "variant": example.variant,
        "id": example.id,
        "passage": passage(original),
        "answer_type": original.answer_type,
        "domain": example.domain,
        "question": example.question,
        "advice": example.advice,
        "story": story,
        "deleted": deleted,
        "appended": appended,
        "references": example.gold,
    }


def scores(example: QAExample, prediction: str, answer_to_original: str | None) -> Row:
    """Return EM, F1, unknown and right; for reformatted questions, whether it is the answer to the
    original; for texts that contradict what a model may remember, whether it is that.
    """
    from interventune.data_modules.interventions.edits import straight_quotes
    from interventune.metrics.answers import same_answer, score_answer
    from interventune.metrics.unknown import unknown_form

    gold = example.gold
    more = Row()
    if example.variant in REFORMATTED:
        prediction = straight_quotes(prediction)
        gold = tuple(map(straight_quotes, gold))
        if answer_to_original is not None:
            more = {"consistency": same_answer(prediction, straight_quotes(answer_to_original))}
    answerable = example.answer_type != "unknown"
    scoring = traits(example.dataset).scoring
    em, f1, unknown = score_answer(prediction, gold, scoring, answerable=answerable)
    if example.remembered and example.variant not in DELETED:
        remembers = score_answer(prediction, example.remembered, "max").em
        more |= {"remembered": example.remembered, "remembers": remembers}
    if unknown:
        more["said_as"] = unknown_form(prediction)
    right = unknown if example.variant in DELETED else em == 1
    return {"em": em, "f1": f1, "unknown": unknown, "right": right, **more}
