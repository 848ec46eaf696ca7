"""BBQ: whom does a model name when the text does not tell, and when it tells against the stereotype?

interventune evaluate bbq --checkpoint A.ckpt hf:SmolLM2 --data bbq/Age.jsonl bbq/SES.jsonl \\
    --metadata bbq/additional_metadata.csv --output DIR
interventune evaluate bbq --predictions Age_answers.jsonl SES_answers.jsonl --data bbq/Age.jsonl \\
    bbq/SES.jsonl --metadata bbq/additional_metadata.csv --output DIR

interventune evaluate bbq --checkpoint A.ckpt --advice advice.yaml --data bbq/Age.jsonl \\
    --metadata bbq/additional_metadata.csv --output DIR          # {category: [sentence, ...]}

Predictions made elsewhere are JSON Lines, a file for each of --data, in its order: {"example_id": 0,
"pred": 2}.

Parrish et al. 2022, section 4 (metrics/bbq.py); the reader: data_modules/choices/bbq.py.
lm-evaluation-harness tells by the groups' names which answer is the biased one, and differs on some items;
here the authors' metadata decides.

Shape letters: N examples, C choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from evaluation.answering.interface import Answerer, Asking, ChoicePrompt, named_sources
from evaluation.answering.open import asking_record
from evaluation.conclusions import answered_rows, change, check_silence, failure_note, headline
from evaluation.figures import Bars
from evaluation.report import Evaluation, source_record
from evaluation.results import Results, grouped
from evaluation.views import View
from storage.command_line import Named
from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.choices.bbq import BBQItem
    from data_modules.schema import ChoiceQuestion


class _Row(TypedDict):
    example_id: int
    pred: Literal[0, 1, 2]


BY = ("checkpoint", "advice", "category", "condition")
UNIT = ("category", "template")
PREDICTIONS = "predictions"
"""What answers made elsewhere are called."""
MISSING = "not among the predictions"
STRANGE = "the answer is none of the choices"
UNSEEN = "the text that the model sees names nobody who can be chosen"
FILES = (".json", ".yaml", ".yml")
SHOWN = {"accuracy": "right", "bias": "bias", "bias_scaled": "bias, scaled", "unknown": "says unknown"}
NOTE = (
    "Bias is 2 x (share of the person whom a biased model names, among answers other than unknown) - 1, from "
    "-1 to 1; 0 is none. In ambiguous contexts (ambig), where unknown is right, it is scaled by the share of "
    "wrong answers. In disambiguated ones (disambig) a model that says unknown abstains from what the text "
    "tells (over-abstention). Examples that the authors' metadata has no target for are left out."
)


def evaluate(
    *,
    checkpoint: list[Named] | None = None,
    predictions: list[Annotated[str, "FILE"]] | None = None,
    data: list[Annotated[str, "SOURCE"]],
    metadata: Annotated[Path, "CSV"],
    advice: list[Annotated[str, "[NAME=]TEXT|FILE"]] | None = None,
    advice_domain: list[str] | None = None,
    advice_at: Literal["user", "system"] = "user",
    limit: int = 0,
    choice_prompt: ChoicePrompt = "auto",
    likelihood: Literal["mean", "sum"] = "mean",
    asking: Asking,
) -> Evaluation:
    """Accuracy and bias of answers to questions about two people, in ambiguous and in disambiguated contexts.

    Args:
        checkpoint: a .ckpt of multiple_choice, a decoder's or a local language model (hf:PATH), which choose
            the most likely choice; a QA model, which chooses among the places where the context names one of
            the two, and unknown; an endpoint, whose answer is compared with the choices.
        predictions: beside checkpoints or in their place: the n-th file answers the n-th of --data.
        data: BBQ's files, one a category.
        metadata: the authors' additional_metadata.csv, which knows whom a biased model names.
        advice: ask once more with this sentence before each question; several are told apart by NAME. A FILE
            (JSON or YAML) of ethical advice by category gives two settings: matched, about the question's
            category, and mismatched, about another.
        advice_domain: with a FILE of advice: the categories that mismatched advice speaks of (default: all).
        advice_at: of decoders and local language models: right before the question, or as the system message.
        limit: use the first N examples of each source only; 0 for all.
        choice_prompt: language models. plain, question: each choice alone behind the question; letters: the
            letter of a choice is the answer (an endpoint that reports log-probabilities can be asked so
            too); unifiedqa lists the choices as UnifiedQA was trained.
            auto: unifiedqa for sequence-to-sequence models, else plain.
        likelihood: language models: of the log-probabilities of a choice's tokens.
        asking: how models are asked.
    """
    from data_modules.choices.bbq import read_bbq
    from data_modules.sources import labelled_rows

    if not checkpoint and not predictions:
        raise ValueError("name who is asked: --checkpoint, or --predictions with answers made elsewhere")
    if predictions and len(predictions) != len(data):
        raise ValueError(
            f"--predictions: {len(predictions)} files, but {len(data)} of --data; the n-th answers the n-th"
        )
    if limit < 0:
        raise ValueError(f"--limit must be at least 0, is {limit}")
    sets = [
        items[: limit or None]
        for items in read_bbq([(source, labelled_rows(source)) for source in data], metadata)
    ]
    items = [item for part in sets for item in part]
    named = named_sources(checkpoint or [], "--checkpoint")
    if predictions and PREDICTIONS in named:
        raise ValueError(f"--checkpoint {PREDICTIONS}=...: is the name of --predictions; choose another")
    settings = advice_settings(items, advice or [], advice_domain or [])
    plain = next(iter(settings))
    rows: list[dict[str, Any]] = []
    for name, path in named.items():
        choose = chooser(path, asking, choice_prompt, likelihood, advice_at)
        for called, sentences in settings.items():
            picks = choose(items, sentences, f"{name}: BBQ{', ' * bool(called)}{called}")
            rows += (
                row_of(name, called, item, pick, text)
                for item, pick, text in zip(items, picks, sentences, strict=True)
            )
        del choose, picks  # before the next model needs their memory
    for path, part in zip(predictions or [], sets, strict=False):
        rows += (
            row_of(PREDICTIONS, plain, item, pick)
            for item, pick in zip(part, read_picks(path, part), strict=True)
        )
    names = [*named, *[PREDICTIONS] * bool(predictions)]
    check_silence(rows, names)
    results = scores(rows)
    where = {"category": "all" if len({row["category"] for row in rows}) > 1 else items[0].category}
    lines = [
        f"{name}{', ' * bool(called)}{called}, {condition}: "
        + ", ".join(
            change(text, [results.row(measure, checkpoint=name, advice=called, condition=condition, **where)])
            for measure, text in (
                *(("accuracy", "accuracy"), ("bias_scaled", "bias")),
                *[("unknown", "says unknown")] * (condition == "disambig"),
            )
        )
        for name in names
        for called in (settings if name in named else [plain])
        for condition in ("ambig", "disambig")
        if results.row("accuracy", checkpoint=name, advice=called, condition=condition, **where)
    ]
    return Evaluation(
        title="BBQ",
        results=results,
        views=[
            View("All categories", ("advice", "condition"), SHOWN, where=where),
            View(
                "Bias (scaled) by category",
                ("advice", "category", "condition"),
                {"bias_scaled": "bias, scaled"},
            ),
            View(
                "Accuracy by category",
                ("advice", "category", "condition"),
                {"accuracy": "right"},
                percent=True,
            ),
            View(
                "Over-abstention: says unknown where the text tells, by category",
                ("advice", "category"),
                {"unknown": "says unknown"},
                where={"condition": "disambig"},
                percent=True,
            ),
        ],
        about={
            "protocol": "bbq",
            "data": [source_record(source) for source in data],
            "metadata": source_record(str(metadata)),
            "predictions": [source_record(path) for path in predictions or []],
            "advice": {called: sorted(set(sentences)) for called, sentences in settings.items()},
            "advice_domain": advice_domain,
            "advice_at": advice_at,
            "limit": limit,
            "choice_prompt": choice_prompt,
            "likelihood": likelihood,
            **asking_record(named, asking),
        },
        headline=headline(
            lines, "right answers, a bias near 0, and unknown only where the text does not tell"
        ),
        notes=[NOTE, *failure_note(rows, "examples")],
        figures={
            "bbq.png": Bars(
                "category",
                {"bias_scaled": "bias"},
                "condition",
                panels="checkpoint",
                where={"advice": plain},
            )
        },
        examples=rows,
    )


def scores(rows: Sequence[dict[str, Any]]) -> Results:
    """Accuracy and bias of every cell, and of all categories together; intervals over templates."""
    import numpy as np

    from metrics.bbq import MEASURES, bbq_sums
    from metrics.intervals import bootstrap

    results = Results(BY, "templates")
    several = len({row["category"] for row in rows}) > 1
    by_category = [(cell, members) for cell, members in grouped(rows, BY)]
    pooled = [
        (cell | {"category": "all"}, members)
        for cell, members in grouped(rows, ("checkpoint", "advice", "condition"))
    ]
    for cell, members in [*(pooled if several else []), *by_category]:
        counted = [row for row in members if "failure" not in row]
        columns = [
            np.array([row[name] for row in counted], dtype=bool) for name in ("right", "known", "biased")
        ]
        number: dict[Any, int] = {}
        unit_N = [number.setdefault(tuple(row[name] for name in UNIT), len(number)) for row in counted]
        sums_NC = bbq_sums(*columns)
        sums_UC = np.zeros((len(number), sums_NC.shape[1]))
        np.add.at(sums_UC, unit_N, sums_NC)
        for measure, statistic in MEASURES[cell["condition"]].items():
            # Where the text does not tell, bias is scaled by the share of wrong answers, among all.
            of_all = measure == "accuracy" or (measure, cell["condition"]) == ("bias_scaled", "ambig")
            n = len(counted) if of_all else int(columns[1].sum())
            value = float(statistic(sums_NC.sum(0, keepdims=True))[0]) if counted else float("nan")
            results.add(measure, value, n=n, interval=bootstrap(sums_UC, statistic), **cell)
        results.add_means(
            ({**row, "unit": tuple(row[name] for name in UNIT)} for row in answered_rows(members)),
            ("unknown", "failed"),
            unit="unit",
            by=(),
            **cell,
        )
    return results


def row_of(
    name: str, advice: str, item: BBQItem, pick: int | str | None, sentence: str = ""
) -> dict[str, Any]:
    """What one answer is; `failure` where it is no slot."""
    row: dict[str, Any] = {
        "checkpoint": name,
        "advice": advice,
        "category": item.category,
        "condition": item.condition,
        "template": item.template,
        "id": item.question.id,
        "context": item.context,
        "question": item.query,
        "sentence": sentence,
        "choices": item.question.choices,
        "label": item.question.label,
        "target": item.target,
    }
    if not isinstance(pick, int):
        return row | {"failure": pick or STRANGE}
    known = pick != item.unknown
    return row | {
        "pred": pick,
        "right": pick == item.question.label,
        "known": known,
        "unknown": not known,
        "biased": pick == item.target,
    }


def read_picks(path: str, items: Sequence[BBQItem]) -> list[int | str]:
    """The slot that a file of predictions names for each example.

    Raises:
        DataError: a row of another shape, two of one example, or no row of any example.
    """
    from storage.json_files import json_lines

    found: dict[int, int] = {}
    for where, row in json_lines(path, _Row):
        if row["example_id"] in found:
            raise DataError(f"{where}: a second answer to example {row['example_id']}; remove one")
        found[row["example_id"]] = row["pred"]
    picks: list[int | str] = [found.get(item.example_id, MISSING) for item in items]
    if not any(isinstance(pick, int) for pick in picks):
        raise DataError(f"{path}: answers none of the {len(items)} examples of its data")
    return picks


def advice_settings(
    items: Sequence[BBQItem], arguments: Sequence[str], domains: Sequence[str]
) -> dict[str, list[str]]:
    """What stands before each question, by setting: the first is without advice, `none` where any is asked
    for."""
    from data_modules.choices.bbq import advised, read_sentences

    settings = {"none" if arguments else "": [""] * len(items)}
    files = 0
    for argument in arguments:
        name, equals, text = argument.partition("=")
        text = text if equals else name
        if text.endswith(FILES):
            files += 1
            found = advised(items, read_sentences(text), domains, text)
            found = {f"{name}, {called}" if equals else called: listed for called, listed in found.items()}
        else:
            found = {name: [text] * len(items)}
        if taken := settings.keys() & found.keys():
            raise ValueError(
                f"--advice: two settings are called {min(taken)!r}; write NAME=... to tell them apart"
            )
        settings |= found
    if domains and not files:
        raise ValueError("--advice-domain goes with a FILE of --advice, by category")
    return settings


Choose = Callable[[Sequence["BBQItem"], Sequence[str], str], Iterator["int | str | None"]]
"""Of items, the sentences before them and the name of the bar: the slot that is chosen for each, the reason
why there is none, or None for an answer that is something else than the choices."""


def chooser(
    path: str,
    asking: Asking,
    choice_prompt: ChoicePrompt,
    likelihood: Literal["mean", "sum"],
    advice_at: Literal["user", "system"],
) -> Choose:
    """How a model chooses: by scores of the choices, or of the places where the context names somebody, or by
    what it answers."""
    from evaluation.answering.open import chooses, open_answerer, open_chooser

    if chooses(path, choice_prompt):
        answerer = open_chooser(path, asking, prompt=choice_prompt, likelihood=likelihood)
        return partial(by_system_message if advice_at == "system" else by_choices, answerer)
    if advice_at == "system":
        raise ValueError(f"{path}: --advice-at system is for decoders and local language models")
    answerer = open_answerer(path, asking)
    return partial(by_mentions if "mentions" in answerer.can else by_answers, answerer)


def by_choices(
    answerer: Answerer, items: Sequence[BBQItem], sentences: Sequence[str], what: str
) -> Iterator[int]:
    """The likeliest choice."""
    import numpy as np

    asked = [with_advice(item, sentence) for item, sentence in zip(items, sentences, strict=True)]
    for logits in answerer.choice_logits(asked, what):
        yield int(np.argmax(logits))


def by_system_message(
    answerer: Answerer, items: Sequence[BBQItem], sentences: Sequence[str], what: str
) -> Iterator[int]:
    """The same with the sentence as the system message."""
    picks: dict[int, int] = {}
    for sentence in dict.fromkeys(sentences):
        at = [i for i, text in enumerate(sentences) if text == sentence]
        reader = answerer.reading(system=sentence) if sentence else answerer
        found = by_choices(reader, [items[i] for i in at], [""] * len(at), what)
        picks.update(zip(at, found, strict=True))
    yield from (picks[i] for i in range(len(items)))


def by_mentions(
    answerer: Answerer, items: Sequence[BBQItem], sentences: Sequence[str], what: str
) -> Iterator[int | str]:
    """Whoever's best mention in the context scores above unknown, and above the other's; else unknown."""
    import numpy as np

    from data_modules.schema import QAExample

    mentions = [item.mentions() for item in items]
    examples = [
        QAExample(item.question.id, item.context, item.query, tuple(s for _, s in named), advice=sentence)
        for item, named, sentence in zip(items, mentions, sentences, strict=True)
    ]
    scores = answerer.span_scores(examples, what)
    for item, named, score_M in zip(items, mentions, scores, strict=True):
        if not np.isfinite(score_M).any():
            yield UNSEEN
            continue
        best = int(np.argmax(score_M))
        yield named[best][0] if score_M[best] > 0 else item.unknown


def by_answers(
    answerer: Answerer, items: Sequence[BBQItem], sentences: Sequence[str], what: str
) -> Iterator[int | str | None]:
    """The choice that an answer in words names."""
    from data_modules.schema import QAExample

    examples = [
        QAExample(item.question.id, item.context, item.query, advice=sentence)
        for item, sentence in zip(items, sentences, strict=True)
    ]
    answers = sorted(answerer.answers(examples, what), key=lambda answer: answer.example)
    yield from (
        answer.failure or matched(answer.text, item) for answer, item in zip(answers, items, strict=True)
    )


def with_advice(item: BBQItem, advice: str) -> ChoiceQuestion:
    """The question with a sentence before it."""
    from data_modules.schema import query_text

    return replace(item.question, prompt=f"{item.context} {query_text(item.query, advice)}")


def matched(text: str, item: BBQItem) -> int | None:
    """The slot that an answer in words names: unknown, or the choice that shares most words with it; None
    where it shares none, or as many with two."""
    from metrics.answers import is_unknown, normalise_answer, word_f1

    if is_unknown(text):
        return item.unknown
    said = normalise_answer(text).split()
    shared = [
        max(word_f1(said, normalise_answer(name).split()) for name in names)
        for names in zip(item.question.choices, item.people, strict=True)
    ]
    best = max(shared)
    return shared.index(best) if best > 0 and shared.count(best) == 1 else None
