"""Do models still answer when the text no longer supports an answer? The faithfulness paper's Tables 4 and 5.

python -m evaluation faithfulness --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
python -m evaluation faithfulness --checkpoint gpt=openai:gpt-4o-mini --data os.jsonl ts_r.jsonl --output DIR
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from data_modules.schema import DELETED, QAExample
from evaluation.answering.interface import Asking, named_sources
from evaluation.failures import answered_rows, failure_note, warn_of_silence
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results
from evaluation.variants import Stories, VariantOptions, read_stories
from evaluation.views import View, number
from storage.command_line import Named

if TYPE_CHECKING:
    from evaluation.answering.interface import Answer

BY = ("checkpoint", "variant", "answer_type", "domain")
MEASURES = {"f1": "F1", "em": "EM", "unknown": "unk%"}
NOTE = (
    "Predictions are compared with the human answers to the original story (`os`). `ts` ends the story after "
    "the rationale: answers should stay. `ts_r` and `os_r` delete the rationale and put the bare answer at "
    "the end where the rest of the story lacks it, `_aug` a sentence that contains it: there EM and F1 "
    "measure *old answers*, which nothing in the text supports any more, and a faithful model says unknown "
    "(unk%)."
)


def evaluate(*, checkpoint: list[Named], variants: VariantOptions, asking: Asking) -> Evaluation:
    """F1, exact match and the share of unknown by variant of the story.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        variants: which data in which variants.
        asking: how models are asked.
    """
    from evaluation.answering.open import open_answerer, prompt_record

    named = named_sources(checkpoint, "--checkpoint")
    data = read_stories(variants)
    sets, types = data.examples(), data.types()
    asks_yes_no = any(e.answer_type in ("yes", "no") for examples in sets.values() for e in examples)
    abstain = any(e.answer_type == "unknown" for examples in sets.values() for e in examples)
    rows: list[dict[str, Any]] = []
    for name, path in named.items():
        answerer = open_answerer(path, asking, need="types" if asks_yes_no else "spans")
        answerer.may_abstain = abstain
        for variant, examples in sets.items():
            answers = answerer.answers(examples, f"{name} on {variant}")
            rows += scored_rows(name, variant, examples, answers, types)
    warn_of_silence(rows, named)
    about = {
        "protocol": "faithfulness",
        "checkpoints": {name: source_record(path) for name, path in named.items()},
        **data.about(),
        "unknown_threshold": asking.unknown_threshold,
        "type_threshold": asking.type_threshold,
        "precision": asking.precision,
        **prompt_record(named.values(), asking),
    }
    return report(rows, data, about)


def scored_rows(
    checkpoint: str,
    variant: str,
    examples: Sequence[QAExample],
    answers: Iterable[Answer],
    types: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """A row for each question, in their order: the answer with its scores, or why there is none."""
    from metrics.answers import is_unknown, score_answer, scoring_of

    for answer in sorted(answers, key=lambda answer: answer.example):
        example = examples[answer.example]
        row = {
            "checkpoint": checkpoint,
            "variant": variant,
            "id": example.id,
            "answer_type": types.get(example.id, example.answer_type),
            "domain": example.domain,
            "prediction": answer.text,
            "references": list(example.gold),
        }
        if answer.failure:
            yield row | {"failure": answer.failure}
        else:
            em, f1 = score_answer(answer.text, example.gold, scoring_of(example.dataset))
            yield row | {"em": em, "f1": f1, "unknown": is_unknown(answer.text)}


def report(rows: Sequence[dict[str, Any]], data: Stories, about: dict[str, Any]) -> Evaluation:
    """The evaluation of all rows: by variant, then by the type of the original answer and by domain."""
    results = Results(BY, "questions")
    cells = [("checkpoint", "variant"), ("checkpoint", "variant", "answer_type")]
    if len({row["domain"] for row in rows}) > 1:
        cells.append(("checkpoint", "variant", "domain"))
    for by in cells:
        results.add_means(rows, tuple(MEASURES), unit="id", by=by)
    results.add_means(answered_rows(rows), ("failed",), unit="id", by=("checkpoint", "variant"))
    whole = {"answer_type": "", "domain": ""}
    views = [
        View("By variant, in percent", ("checkpoint", "variant"), MEASURES, where=whole, percent=True),
        View(
            "By type of the original answer, in percent",
            ("checkpoint", "variant", "answer_type"),
            MEASURES,
            where={"answer_type": sorted({row["answer_type"] for row in rows})},
            percent=True,
        ),
        View(
            "By domain, in percent",
            ("checkpoint", "variant", "domain"),
            MEASURES,
            where={"domain": sorted({row["domain"] for row in rows} - {""}), "answer_type": ""},
            percent=True,
        ),
    ]
    figure = Bars(
        x="variant",
        hue="checkpoint",
        measures={"em": "EM", "unknown": "says unknown"},
        where=whole,
        percent=True,
        label="% of questions",
        starred=DELETED,
        note="* rationale deleted: EM is the share of old answers",
    )
    notes = [NOTE, data.rejection_note(), *failure_note(rows, "questions, over all variants")]
    return Evaluation(
        title=f"Semantic faithfulness on {data.dataset or 'this data'}",
        results=results,
        views=views,
        about=about,
        headline=headline(results, list(about["checkpoints"]), data.variants),
        notes=[note for note in notes if note],
        figures={"faithfulness.png": figure},
        examples=rows,
    )


def headline(results: Results, checkpoints: Sequence[str], variants: Sequence[str]) -> str:
    """What became of old answers once their evidence is deleted."""
    deleted = next((variant for variant in variants if variant in DELETED), "")
    if not deleted:
        return ""
    parts = []
    for name in checkpoints:
        cell = {"checkpoint": name, "variant": deleted, "answer_type": "", "domain": ""}
        em, unknown = (number(results.value(m, **cell), percent=True) for m in ("em", "unknown"))
        parts.append(f"{name} still gives the old answer in {em} %, says unknown in {unknown} %")
    return f"After deletion of the rationale ({deleted}): {'; '.join(parts)}."
