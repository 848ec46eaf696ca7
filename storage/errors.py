"""The error that all packages raise for bad input."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class DataError(ValueError):
    """Bad input, described in one line: the file or record, the field, and what to do about it."""


@contextmanager
def as_data_error(what: str) -> Iterator[None]:
    """Within this context, any exception becomes a one-line DataError: `what`, and the original
    reason.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{what}: {reason[:500]}") from error


def refuse(defects: Sequence[str]) -> None:
    """Raise a DataError of the first five defects and the number of others, if there are any."""
    if defects:
        shown = [defect[:350] for defect in defects[:5]]
        if len(defects) > 5:
            shown.append(f"and {len(defects) - 5} more")
        raise DataError("; ".join(shown))
