"""One measured system of one benchmark, and the ratio of two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Result:
    """The repeated measurements of one system.

    Args:
        benchmark: What was measured, `training/minilm`; its systems are compared with each other.
        system: Whose figure it is: `interventune`, `Trainer, defaults`.
        unit: Of `values`.
        values: One figure a repetition; systems of one benchmark take turns, so that noise hits all alike.
        higher_is_better: False for seconds and bytes.
        command: What runs this benchmark alone.
        notes: Anything that a reader needs: sizes, seconds, peak memory, numbers that must agree.
    """

    benchmark: str
    system: str
    unit: str
    values: tuple[float, ...]
    higher_is_better: bool = True
    command: str = ""
    notes: dict[str, float | int | str] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The middle of `values`."""
        return median(self.values)

    def times(self, other: Result) -> float:
        """How many times better this is than `other`: the median ratio of simultaneous repetitions."""
        pairs = zip(self.values, other.values, strict=True)
        return median(mine / its if self.higher_is_better else its / mine for mine, its in pairs)
