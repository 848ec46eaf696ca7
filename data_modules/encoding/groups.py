"""Groups to rows of tokens: four a group, one for each variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_modules.encoding.prompts import encode_prompts, group_prompts
from data_modules.encoding.windows import EncodedRow, Encoding, encode_texts, token_span
from data_modules.schema import Group, Span, query_text
from storage.errors import DataError


def encode_groups(groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> list[EncodedRow]:
    """The rows of groups; each variant has exactly one window. Their `spans` are the first and last token of
    both subjects, and of `unknown` where it is offered.

    Raises:
        DataError: a context longer than a window, or a subject whose first or last token reaches beyond it
            (the tokenizer glues it to its neighbour): named, never scored as something else.
    """
    if encoding.is_decoder:
        return list(encode_prompts(group_prompts(groups, encoding), tokenizer, encoding))
    variants = [(variant, group.key) for group in groups for variant in group.variants]
    texts = ((v.context, query_text(v.question, v.advice), key) for v, key in variants)
    rows: list[EncodedRow] = []
    for row in encode_texts(texts, tokenizer, encoding):
        variant, key = variants[row.example]
        if row.example != len(rows):
            raise DataError(f"{key}: does not fit into {encoding.max_length} tokens (encoding.max_length)")
        spans = tuple(whole_span(span, variant.context, row, key) for span in variant.candidates)
        rows.append(row._replace(spans=spans))
    return rows


def whole_span(span: Span, context: str, row: EncodedRow, name: str) -> tuple[int, int]:
    """First and last token of a subject; `name` is its record's, for errors."""
    found = token_span(row.offsets_TE, span)
    covered = context[row.offsets_TE[found[0], 0] : row.offsets_TE[found[1], 1]] if found else ""
    if found is None or covered.strip() != span.text.strip():
        raise DataError(f"{name}: no tokens cover just the subject {span.text!r} of {context!r}")
    return found
