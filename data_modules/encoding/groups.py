"""Groups to a table: a row holds a group, and its four variants in tokens, one after the other."""

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
    | {"input_ids": INTS, "token_type_ids": BYTES, "is_context": MASK, "length": INTS}
    | {"candidate": INTS}  # tokens of both subjects in every variant, and of `unknown` where it is offered
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
    rows = []
    for g, group in enumerate(groups):
        of_group = encoded[4 * g : 4 * g + 4]
        rows.append(
            {
                "group": RECORD.dump_json(group),
                "input_ids": np.concatenate([row.input_ids_T for row in of_group]),
                "token_type_ids": np.concatenate([row.token_type_ids_T for row in of_group]),
                "is_context": np.concatenate([row.offsets_TE[:, 0] >= 0 for row in of_group]),
                "length": [len(row.input_ids_T) for row in of_group],
                "candidate": np.ravel([row.spans for row in of_group]),
            }
        )
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
