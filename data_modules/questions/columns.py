"""Lists of objects in the layout of the Hub, which may keep them as columns."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

T = TypeVar("T")


def _rows(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(column, list) for column in value.values()):
        return value
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


Listed = Annotated[list[T], BeforeValidator(_rows)]
"""A list of T, or what `{"name": [N], ...}` says of N of them."""
