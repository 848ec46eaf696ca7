"""All that the goldens take from inside the project. Code that moves is followed here, and nowhere else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

ARCHITECTURES = {"wordpiece": "bert", "bytes": "roberta", "xlnet_pieces": "xlnet", "words_bert": "bert"}
"""Tokenizers of tests/data_modules/small_tokenizers.py, and whose rows are encoded with them."""
LENGTHS = {"words_bert": (72, 16)}
"""Tokens in a row and stride, so that stories take several windows; LETTERS where most tokens are letters."""
LETTERS = (256, 64)
QUESTIONS = 50


def write_story_files(folder: Path) -> None:
    """Embedded questions and groups in the public formats, a few of each."""
    from data_modules.choices.rows import write_choices
    from data_modules.groups.lei import write_lei
    from data_modules.questions.squad import write_squad
    from data_modules.sources import read_choices, read_groups, read_questions

    write_squad(islice(read_questions("stories:dev"), QUESTIONS), folder / "squad.json")
    write_squad(islice(read_questions("stories:dev?seed=1"), 11), folder / "few_squad.json")
    write_lei(islice(read_groups("stories:heldout"), QUESTIONS), folder / "lei.json")
    write_lei(islice(read_groups("stories:unseen"), 24), folder / "few_lei.json")
    write_choices(folder / "choices.jsonl", islice(read_choices("stories:choices_dev"), 24))


def tokenizer_of(kind: str) -> Any:
    from tests.data_modules.fixtures.small_tokenizers import tokenizer

    return tokenizer(kind)


def question_windows(source: str, kind: str, lengths: tuple[int, int] | None = None) -> list[Any]:
    """What the windows of the first questions hold, one entry a question."""
    from data_modules.encoding.questions import encode_questions
    from data_modules.encoding.windows import Encoding
    from data_modules.sources import read_questions

    max_length, stride = lengths or LENGTHS.get(kind, LETTERS)
    how = Encoding(order="auto", history_style="auto", max_length=max_length, stride=stride)
    examples = list(islice(read_questions(source), QUESTIONS))
    found: list[list[Any]] = []
    table = encode_questions(examples, tokenizer_of(kind), how.resolved(ARCHITECTURES[kind]))
    for row in table.to_pylist():
        if row["window"] == 0:
            found.append([])
        window = {"ids": row["input_ids"], "types": row["token_type_ids"], "cls": row["cls"]}
        window |= {"offsets": np.reshape(row["offsets"], (-1, 2)).tolist()}
        window |= {name: row[name] for name in ("start", "end", "number", "option")}
        window |= {"type": row["answer_type"], "rationale": _where(row["rationale"])}
        found[-1].append(window | {"max_context": _where(row["max_context"])})
    return [
        {"id": example.id, "gold": list(example.gold), "kind": example.answer_type, "windows": windows}
        for example, windows in zip(examples, found, strict=True)
    ]


def group_windows(source: str, kind: str) -> list[Any]:
    """The four rows of the first groups, and where the two subjects stand in them."""
    from data_modules.encoding.groups import encode_groups
    from data_modules.encoding.windows import Encoding, encode_texts, query_text
    from data_modules.sources import read_groups

    how = Encoding(order="auto", history_style="auto", max_length=512).resolved(ARCHITECTURES[kind])
    groups = list(islice(read_groups(source), QUESTIONS))
    texts = ((v.context, query_text(v.question, v.advice), "") for g in groups for v in g.variants)
    rows = [_row(row) for row in encode_texts(texts, tokenizer_of(kind), how)]
    table = encode_groups(groups, tokenizer_of(kind), how).to_pylist()
    return [
        {"key": group.key, "class": group.advice_class, "rows": rows[4 * g : 4 * g + 4]}
        | {"candidates": np.reshape(table[g]["candidate"], (4, 2, 2)).tolist()}
        for g, group in enumerate(groups)
    ]


def choice_windows(source: str, kind: str) -> list[Any]:
    """The rows of the first multiple-choice questions."""
    from data_modules.encoding.choices import ChoiceEncoding, encode_choices
    from data_modules.sources import read_choices

    examples = read_choices(source)[:QUESTIONS]
    how = ChoiceEncoding(max_length=96)
    encoded = encode_choices(examples, tokenizer_of(kind), how, ARCHITECTURES[kind])
    found = []
    for example, row in zip(examples, encoded.to_pylist(), strict=True):
        ends = np.cumsum(row["length"])[:-1]
        columns = (np.split(row[name], ends) for name in ("input_ids", "token_type_ids"))
        rows = [{"ids": ids.tolist(), "types": types.tolist()} for ids, types in zip(*columns, strict=True)]
        found.append({"id": example.id, "label": example.label, "benchmark": example.benchmark, "rows": rows})
    return found


def members(path: Path) -> list[str]:
    """The groups of a file, in the order in which they are read."""
    from data_modules.sources import read_groups

    return [group.key for group in read_groups(path)]


def _row(row: Any) -> dict[str, Any]:
    found = {"ids": row.input_ids_T.tolist(), "types": row.token_type_ids_T.tolist(), "cls": int(row.cls)}
    return found | {"offsets": row.offsets_TE.tolist()}


def _where(mask_T: Sequence[int]) -> list[int]:
    return np.flatnonzero(mask_T).tolist()


def digest(value: Any) -> str:
    """SHA-256 of bytes, or of a value as JSON."""
    content = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def digests(items: Sequence[Any]) -> dict[str, Any]:
    """How many there are and what each one holds, without a word of it."""
    return {"n": len(items), "each": [digest(item)[:16] for item in items]}


def save_causal(folder: Path, texts: Iterable[str], *, seed: int, positions: int) -> None:
    """A causal language model of random weights that knows the words of `texts`; transformers alone."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    splitter = pre_tokenizers.Whitespace()
    pieces = {piece for text in texts for piece, _ in splitter.pre_tokenize_str(text.lower())}
    words = ["<pad>", "</s>", "<unk>", "<s>", *sorted(pieces)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), splitter
    sizes = {"vocab_size": len(words), "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": positions}
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=3, eos_token_id=1))
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that prompts matter
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 0.6)
    model.save_pretrained(folder)
    names = {"eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
