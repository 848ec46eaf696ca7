from __future__ import annotations

from tests.malformed.conftest import given, no_hang

__all__ = ["given", "no_hang"]
