"""Groups to a table: a row holds the four variants of a group in tokens, and the group itself.

Columns: the group's names; `context`, `question` and `advice` of its four variants; `span`, the characters of
both subjects in every context, 16 numbers; `input_ids` and `token_type_ids` of all four variants behind one
another, `is_context` of each token, `length` of each variant; `candidate`, the tokens of both subjects in
every variant, 16 numbers; in the rows of a decoder they stand behind the prompt, and `unknown` behind them
where it is offered (24 numbers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from data_modules.encoding.tables import list_column
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, token_span
from data_modules.schema import Group, Span, UnderspecifiedQuestion, query_text
from storage.errors import DataError

NAMES = ("template", "category", "attribute", "advice_class", "advice_id", "domain", "advice_domain")
TEXTS = ("context", "question", "advice")


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
        spans_of = [row.spans for row in rows]
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
        spans_of = [
            tuple(whole_span(span, variant.context, row, key) for span in variant.candidates)
            for (variant, key), row in zip(variants, rows, strict=True)
        ]

    def columns_of_groups(parts: Sequence[Any], dtype: Any) -> pa.Array:
        """Each group's four parts, behind one another."""
        return list_column([np.concatenate(parts[at : at + 4]) for at in range(0, len(parts), 4)], dtype)

    characters = [[(span.start, span.end) for span in variant.candidates] for variant, _ in variants]
    return pa.table(
        {
            "first": pa.array([group.subjects[0] for group in groups], pa.string()),
            "second": pa.array([group.subjects[1] for group in groups], pa.string()),
            **{name: pa.array([getattr(g, name) for g in groups], pa.string()) for name in NAMES},
            **{
                name: pa.array(
                    [[getattr(v, name) for v in g.variants] for g in groups], pa.list_(pa.string())
                )
                for name in TEXTS
            },
            "span": columns_of_groups([list(chain(*ends)) for ends in characters], np.int32),
            "input_ids": columns_of_groups([row.input_ids_T for row in rows], np.int32),
            "token_type_ids": columns_of_groups([row.token_type_ids_T for row in rows], np.uint8),
            "is_context": columns_of_groups([row.offsets_TE[:, 0] >= 0 for row in rows], np.uint8),
            "length": columns_of_groups([[len(row.input_ids_T)] for row in rows], np.int32),
            "candidate": columns_of_groups([list(chain(*spans)) for spans in spans_of], np.int32),
        }
    )


def whole_span(span: Span, context: str, row: EncodedRow, name: str) -> tuple[int, int]:
    """First and last token of a subject; `name` is its record's, for errors."""
    found = token_span(row.offsets_TE, span)
    if found is None:
        raise DataError(f"{name}: the window does not hold the subject {span.text!r} of {context!r}")
    covered = context[row.offsets_TE[found[0], 0] : row.offsets_TE[found[1], 1]]
    if covered.strip() != span.text.strip():
        raise DataError(
            f"{name}: the tokenizer cuts {span.text!r}: its tokens cover {covered!r} in {context!r}"
        )
    return found


def decode_groups(table: datasets.Dataset) -> Iterator[Group]:
    """The groups of a table, in order."""
    for row in table.select_columns(["first", "second", *NAMES, *TEXTS, "span"]).with_format(None):
        variants = []
        for v in range(4):
            context, question, advice = (row[name][v] for name in TEXTS)
            at = row["span"][4 * v : 4 * v + 4]
            one, two = (Span(start, end, context[start:end]) for start, end in (at[:2], at[2:]))
            variants.append(UnderspecifiedQuestion(context, question, (one, two), advice))
        asked, negated, asked_again, negated_again = variants
        yield Group(
            subjects=(row["first"], row["second"]),
            variants=(asked, negated, asked_again, negated_again),
            **{name: row[name] for name in NAMES},
        )
