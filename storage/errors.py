"""The error that every room raises for bad input."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataError(ValueError):
    """Bad input, told in one line: which file or record, which field, and what to do about it."""


@contextmanager
def as_data_error(what: str) -> Iterator[None]:
    """Within, whatever a library raises becomes a DataError of one line: `what`, and the library's reason."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{what}: {reason[:500]}") from error
