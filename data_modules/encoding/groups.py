"""Groups to a table: a row holds a variant in tokens, and a group's first row the group itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from data_modules.encoding.prompts import encode_prompts, group_prompts
from data_modules.encoding.tables import BYTES, INTS, MASK
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, token_span
from data_modules.schema import Group, Span, query_text
from storage.errors import DataError

RECORD = TypeAdapter(Group)
ROWS = pa.schema(
    {"group": pa.binary()}  # the record as JSON
    | {"input_ids": INTS, "token_type_ids": BYTES, "is_context": MASK}
    | {"candidate": INTS}  # first and last token of both subjects, and of `unknown` where it is offered
)


def encode_groups(groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> pa.Table:
    """The rows of groups; each variant has exactly one window.

    Raises:
        DataError: a context longer than a window, or a subject whose first or last token reaches beyond it
            (the tokenizer glues it to its neighbour): named, never scored as something else.
    """
    variants = [(variant, group.key) for group in groups for variant in group.variants]
    if encoding.is_decoder:
        encoded = list(encode_prompts(group_prompts(groups, encoding), tokenizer, encoding))
    else:
        texts = ((v.context, query_text(v.question, v.advice), key) for v, key in variants)
        encoded = []
        for row in encode_texts(texts, tokenizer, encoding):
            variant, key = variants[row.example]
            if row.example != len(encoded):
                raise DataError(
                    f"{key}: the context does not fit into {encoding.max_length} tokens with its question; "
                    "raise encoding.max_length"
                )
            spans = tuple(whole_span(span, variant.context, row, key) for span in variant.candidates)
            encoded.append(row._replace(spans=spans))
    rows: list[dict[str, Any]] = [
        {
            "input_ids": row.input_ids_T,
            "token_type_ids": row.token_type_ids_T,
            "is_context": row.offsets_TE[:, 0] >= 0,
            "candidate": np.ravel(row.spans),
        }
        for row in encoded
    ]
    for first, group in zip(rows[::4], groups, strict=True):
        first["group"] = RECORD.dump_json(group)
    return pa.Table.from_pylist(rows, ROWS)


def whole_span(span: Span, context: str, row: EncodedRow, name: str) -> tuple[int, int]:
    """First and last token of a subject; `name` is its record's, for errors."""
    found = token_span(row.offsets_TE, span)
    covered = context[row.offsets_TE[found[0], 0] : row.offsets_TE[found[1], 1]] if found else ""
    if found is None or covered.strip() != span.text.strip():
        raise DataError(
            f"{name}: no tokens of the window cover just the subject {span.text!r} of {context!r}"
        )
    return found
