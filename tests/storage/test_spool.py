"""Objects on disk come back as they were, in order and by index, also while others are added."""

from __future__ import annotations

from storage.spool import Spool


def test_objects_come_back_by_order_and_by_index() -> None:
    spool: Spool[object] = Spool()
    items = [{"text": "\N{SNOWMAN}" * i, "number": (i, None)} for i in range(20)]
    for i, item in enumerate(items):
        spool.append(item)
        assert spool[i // 2] == items[i // 2]
    assert list(spool) == items
    one, other = iter(spool), iter(spool)
    assert [next(one), next(one), next(other)] == [items[0], items[1], items[0]]
    assert len(spool) == 20
