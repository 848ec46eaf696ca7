"""SQuAD v1.1 and v2: a JSON file, a parquet file, a saved or plain dataset folder, or the Hub -> QAExample.

Several references are kept, in order, without repeats; training uses the first. Text is left as it is:
SQuAD's questions carry stray blanks and they stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_modules.schema import QAExample, Span
from storage.errors import DataError
from storage.json_files import BadRecords, atomic_text, field, load_json


def read_squad(path: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """One example per question of a SQuAD-format JSON file, in the file's order.

    Raises DataError naming the file, the place inside it and the question id when an offset does not cut
    its answer; `skip_bad=True` leaves such questions out and logs how many. A wrong shape is never skipped.
    """
    yield from squad_examples(load_json(path), path, skip_bad=skip_bad)


def squad_examples(document: Any, source: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """The same for a document that is already parsed; `source` names it in errors."""
    bad = BadRecords(source, skip_bad=skip_bad)
    seen: set[str] = set()
    for where, paragraph in paragraphs(document, source):
        context = field(paragraph, "context", str, where)
        for index, qa in enumerate(field(paragraph, "qas", list, where)):
            place = f"{where}.qas[{index}]"
            qa_id = str(field(qa, "id", (str, int), place))
            question = field(qa, "question", str, place)
            answers = _answer_pairs(qa, f"{place} (id {qa_id})")
            try:
                example = _example(qa_id, context, question, answers, f"{place} (id {qa_id})")
                _refuse_repeat(qa_id, seen, place)
            except DataError as error:
                bad.reject(error)
                continue
            yield example
    bad.report()


def paragraphs(document: Any, source: str | Path) -> Iterator[tuple[str, Any]]:
    """(place, paragraph) of a SQuAD-shaped document, whatever its paragraphs hold."""
    for i, article in enumerate(field(document, "data", list, str(source))):
        for j, paragraph in enumerate(field(article, "paragraphs", list, f"{source}: data[{i}]")):
            yield f"{source}: data[{i}].paragraphs[{j}]", paragraph


def is_true(value: Any, where: str) -> bool:
    """`is_impossible` as a truth value: LEI's files hold the string "false" where SQuAD v2 has a boolean."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise DataError(f"{where}: the field 'is_impossible' must be true or false, found {value!r}")


def _answer_pairs(qa: Any, where: str) -> list[tuple[int, str]]:
    listed = field(qa, "answers", list, where) if "answers" in qa else []
    pairs = []
    for index, answer in enumerate(listed):
        place = f"{where}.answers[{index}]"
        pairs.append((field(answer, "answer_start", int, place), field(answer, "text", str, place)))
    if "is_impossible" in qa and is_true(qa["is_impossible"], where) == bool(pairs):
        raise DataError(
            f"{where}: is_impossible is {qa['is_impossible']!r}, but the field 'answers' holds {len(pairs)}"
        )
    return pairs


def _refuse_repeat(qa_id: str, seen: set[str], where: str) -> None:
    if qa_id in seen:
        raise DataError(f"{where}: the id {qa_id!r} occurs twice; ids must tell the questions apart")
    seen.add(qa_id)


def _example(
    qa_id: str, context: str, question: str, answers: Iterable[tuple[int, str]], where: str
) -> QAExample:
    spans = []
    for start, text in answers:
        if start < 0 or not text:
            raise DataError(f"{where}: answer {text!r} at offset {start} is empty or lies before the context")
        span = Span(start, start + len(text), text)
        span.check(context, where)
        spans.append(span)
    return QAExample(qa_id, context, question, tuple(dict.fromkeys(spans)), dataset="squad")


def rows_to_examples(
    rows: Iterable[Mapping[str, Any]], source: str, *, skip_bad: bool = False
) -> Iterator[QAExample]:
    """Rows in the Hub's layout (id, context, question, answers {text [A], answer_start [A]}) -> examples."""
    bad = BadRecords(source, skip_bad=skip_bad)
    seen: set[str] = set()
    for index, row in enumerate(rows):
        where = f"{source}: row {index}"
        row_id = str(field(row, "id", (str, int), where))
        where = f"{where} (id {row_id})"
        answers = field(row, "answers", dict, where)
        starts, texts = field(answers, "answer_start", list, where), field(answers, "text", list, where)
        if len(starts) != len(texts):
            raise DataError(f"{where}: {len(texts)} answer texts but {len(starts)} offsets")
        context, question = field(row, "context", str, where), field(row, "question", str, where)
        try:
            example = _example(row_id, context, question, zip(starts, texts, strict=True), where)
            _refuse_repeat(row_id, seen, where)
        except DataError as error:
            bad.reject(error)
            continue
        yield example
    bad.report()


def read_squad_hub(name: str, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """`NAME[:SPLIT]` from the Hugging Face Hub (`rajpurkar/squad:validation`) or from a local folder."""
    yield from rows_to_examples(hub_rows(name), name, skip_bad=skip_bad)


def parquet_rows(path: str | Path) -> Iterable[Mapping[str, Any]]:
    """The rows of one parquet file, streamed."""
    import datasets  # slow to import, and only these two functions need it

    rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", streaming=True
    )
    return rows


def hub_rows(name: str) -> Iterable[Mapping[str, Any]]:
    """The rows of `NAME[:SPLIT]`, whatever their layout, from the Hugging Face Hub or a local folder.

    Without SPLIT the dataset must have only one. A slice such as `validation[:100]` is a split too. A third
    part of the NAME chooses among the Hub's configurations: `hotpotqa/hotpot_qa/distractor:validation`.
    """
    repository, _, split = name.partition(":")
    if not repository:
        raise DataError(
            "hub: a dataset name is missing; write hub:NAME[:SPLIT], as hub:rajpurkar/squad:train"
        )
    return _load(repository, split)


def _load(repository: str, split: str) -> Iterable[Mapping[str, Any]]:
    import datasets

    folder = Path(repository)
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            loaded = datasets.load_from_disk(repository)
            if split and isinstance(loaded, datasets.DatasetDict) and split in loaded:
                loaded = loaded[split]
            elif split:
                raise DataError(f"{repository}: no split {split!r}; write the folder's own or leave it out")
        else:
            name, config = _name_and_config(repository)
            loaded = datasets.load_dataset(name, *config, split=split or None)
    except DataError:
        raise
    except Exception as error:  # the library raises a dozen types: offline, unknown name, bad split, ...
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{repository}:{split}: cannot load this dataset: {reason}") from error
    if not isinstance(loaded, dict):
        return loaded
    if len(loaded) == 1:
        return next(iter(loaded.values()))
    raise DataError(
        f"{repository}: name one of its splits, as {repository}:{next(iter(loaded))} ({', '.join(loaded)})"
    )


def _name_and_config(repository: str) -> tuple[str, tuple[str, ...]]:
    """A name on the Hub has two parts; a third one is a configuration, unless all is a local folder."""
    parts = repository.split("/")
    if len(parts) != 3 or not all(parts) or Path(repository).exists():
        return repository, ()
    return "/".join(parts[:2]), (parts[2],)


def write_squad(examples: Iterable[QAExample], path: str | Path, *, version: str = "interventune") -> int:
    """Write SQuAD v2's JSON layout, one article per example; returns how many. Atomic.

    Advice is written where LEI's files have it, at the front of the question: SQuAD has no field for it.
    Raises DataError for an answer yes or no, and for a question with history, which the format cannot hold.
    """
    count = 0
    with atomic_text(path) as file:
        file.write(f'{{"version": {json.dumps(version)}, "data": [')
        for example in examples:
            if example.answer_type in ("yes", "no") or example.history:
                raise DataError(
                    f"{example.id}: SQuAD's format holds neither yes/no answers nor history; write rows with "
                    "`python -m data_modules perturb --variant os`"
                )
            file.write(",\n" if count else "\n")
            file.write(json.dumps(_article(example)))
            count += 1
        file.write("\n]}\n")
    return count


def _article(example: QAExample) -> dict[str, Any]:
    qa = {
        "id": example.id,
        "question": f"{example.advice} {example.question}" if example.advice else example.question,
        "answers": [{"text": span.text, "answer_start": span.start} for span in example.answers],
        "is_impossible": not example.answers,
    }
    return {"title": example.id, "paragraphs": [{"context": example.context, "qas": [qa]}]}
