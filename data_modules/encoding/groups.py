"""Groups to a table, and back: a row holds a group, and its four variants in tokens, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import BYTES, INTS, MASK, TEXTS
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, token_span
from data_modules.schema import Group, Span, UnderspecifiedQuestion, query_text
from storage.errors import DataError

NAMES = ("template", "category", "attribute", "advice_class", "advice_id", "domain", "advice_domain")
PARTS = ("context", "question", "advice")
"""Of every variant."""

ROWS = pa.schema(
    {
        **dict.fromkeys(("first", "second", *NAMES), pa.string()),
        **dict.fromkeys(PARTS, TEXTS),
        "span": INTS,  # characters of both subjects in every context, 16 numbers
        "input_ids": INTS,
        "token_type_ids": BYTES,
        "is_context": MASK,
        "length": INTS,
        "candidate": INTS,  # tokens of both subjects in every variant, and of `unknown` where it is offered
    }
)


def encode_groups(groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> pa.Table:
    """The rows of groups; each variant has exactly one window.

    Raises:
        DataError: a context longer than a window, or a subject whose first or last token reaches beyond it
            (the tokenizer glues it to its neighbour): named, never scored as something else.
    """
    variants = [(variant, group.key) for group in groups for variant in group.variants]
    if encoding.is_decoder:
        from data_modules.encoding.prompts import group_rows

        rows = list(group_rows(groups, tokenizer, encoding))
        spans = [row.spans for row in rows]
    else:
        texts = ((v.context, query_text(v.question, v.advice), key) for v, key in variants)
        rows = []
        for row in encode_texts(texts, tokenizer, encoding):
            if row.example != len(rows):
                raise DataError(
                    f"{variants[row.example][1]}: the context does not fit into {encoding.max_length} tokens "
                    "with its question; raise encoding.max_length"
                )
            rows.append(row)
        spans = [
            tuple(whole_span(span, variant.context, row, key) for span in variant.candidates)
            for (variant, key), row in zip(variants, rows, strict=True)
        ]
    found = []
    for g, group in enumerate(groups):
        of_group = rows[4 * g : 4 * g + 4]
        characters = [(span.start, span.end) for v in group.variants for span in v.candidates]
        found.append(
            {
                "first": group.subjects[0],
                "second": group.subjects[1],
                **{name: getattr(group, name) for name in NAMES},
                **{name: [getattr(v, name) for v in group.variants] for name in PARTS},
                "span": np.ravel(characters),
                "input_ids": np.concatenate([row.input_ids_T for row in of_group]),
                "token_type_ids": np.concatenate([row.token_type_ids_T for row in of_group]),
                "is_context": np.concatenate([row.offsets_TE[:, 0] >= 0 for row in of_group]),
                "length": [len(row.input_ids_T) for row in of_group],
                "candidate": np.ravel(spans[4 * g : 4 * g + 4]),
            }
        )
    return pa.Table.from_pylist(found, ROWS)


def whole_span(span: Span, context: str, row: EncodedRow, name: str) -> tuple[int, int]:
    """First and last token of a subject; `name` is its record's, for errors."""
    found = token_span(row.offsets_TE, span)
    covered = context[row.offsets_TE[found[0], 0] : row.offsets_TE[found[1], 1]] if found else ""
    if found is None or covered.strip() != span.text.strip():
        raise DataError(
            f"{name}: no tokens of the window cover just the subject {span.text!r} of {context!r}"
        )
    return found


def decode_groups(table: datasets.Dataset) -> Iterator[Group]:
    """The groups of a table, in order."""
    for row in table.select_columns(["first", "second", *NAMES, *PARTS, "span"]).with_format(None):
        variants = []
        for v in range(4):
            context, question, advice = (row[name][v] for name in PARTS)
            at = row["span"][4 * v : 4 * v + 4]
            one, two = (Span(start, end, context[start:end]) for start, end in (at[:2], at[2:]))
            variants.append(UnderspecifiedQuestion(context, question, (one, two), advice))
        asked, negated, asked_again, negated_again = variants
        yield Group(
            subjects=(row["first"], row["second"]),
            variants=(asked, negated, asked_again, negated_again),
            **{name: row[name] for name in NAMES},
        )
