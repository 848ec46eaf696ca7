"""The error that every room raises for bad input."""


class DataError(ValueError):
    """Bad input, told in one line: which file or record, which field, and what to do about it."""
