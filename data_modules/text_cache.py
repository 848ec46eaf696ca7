"""Answers of a text model kept in a JSONL file: nothing is asked twice, and no finished work is lost.

    model = CachedTextModel(open_text_model("hf:gpt2"), Path("answers.jsonl"), max_requests=500)

One line an answer: `{key, model, settings, prompt, text, time}`, appended as it comes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from data_modules.json_files import field, parse_line
from data_modules.schema import DataError
from data_modules.text_models import Settings, TextFailure, TextModel

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

BOUND_REACHED = TextFailure("max requests reached")

_START = b'{"key": '
"""What every line begins with: a piece of a line that does not is not ours to remove."""


class CachedTextModel:
    """A text model that remembers its answers.

    Failures are not kept: the next run tries them again. An answer counts for the same model name, settings
    and prompt only.

    Args:
        model: answers what the file does not know.
        path: the JSONL file, made where it is absent; None remembers for the lifetime of the object.
        max_requests: how many prompts may go to the model in all; the rest fail with `max requests reached`,
            and a later run with the same file goes on there. (An endpoint's own repetitions do not count.)

    Raises:
        DataError: the file is no such cache, or cannot be read or written.
    """

    def __init__(self, model: TextModel, path: Path | None, *, max_requests: int | None = None) -> None:
        if max_requests is not None and max_requests < 0:
            raise ValueError(f"max_requests must be 0 or more, not {max_requests}")
        self.model, self.path, self.max_requests = model, path, max_requests
        self.requests = 0
        """Prompts that went to the model so far."""
        self._texts = {} if path is None else read_cache(path)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def settings(self) -> Settings:
        return self.model.settings

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        keys = [cache_key(self.name, self.settings, prompt) for prompt in prompts]
        new = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._texts}
        if self.max_requests is not None:
            new = dict(list(new.items())[: max(0, self.max_requests - self.requests)])
        failed: dict[str, TextFailure] = {}
        with ExitStack() as stack:
            file = stack.enter_context(open_cache(self.path)) if self.path and new else None
            answers = self.model.complete(list(new.values())) if new else iter(())
            for key in keys:
                if key in new and key not in self._texts and key not in failed:
                    # Of the prompts sent, this is the next that has no answer yet: both are in one order.
                    answer = next(answers)
                    self.requests += 1
                    if isinstance(answer, TextFailure):
                        failed[key] = answer
                    else:
                        self._texts[key] = answer
                        if file:
                            self._write(file, key, new[key], answer)
                yield self._texts[key] if key in self._texts else failed.get(key, BOUND_REACHED)

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Those of the model; not kept."""
        return self.model.log_likelihoods(pairs)

    def _write(self, file: FileIO, key: str, prompt: str, text: str) -> None:
        record = {
            "key": key,
            "model": self.name,
            "settings": self.settings,
            "prompt": prompt,
            "text": text,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        append_line(file, json.dumps(record))


def cache_key(model: str, settings: Settings, prompt: str) -> str:
    """sha256 of model name, settings (in whatever order) and prompt."""
    return hashlib.sha256(json.dumps([model, settings, prompt], sort_keys=True).encode()).hexdigest()


def open_cache(path: Path) -> FileIO:
    """The file, open for appending; DataError where that is not possible."""
    try:
        return FileIO(path, "a")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None


def append_line(file: FileIO, line: str) -> None:
    """Append at once, past any buffer: on a full disk (DataError) all lines before this one are there."""
    rest = memoryview((line + "\n").encode())
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        raise DataError(f"{file.name!s}: cannot be written: {error.strerror}") from None


def read_cache(path: Path) -> dict[str, str]:
    """Texts by key; nothing for a file that does not exist. A last line that was cut off while it was
    written is removed from the file, with a warning.

    Raises:
        DataError: a line is not one of a cache's (the error names it), or the folder does not exist.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist; create it first")
    if not path.exists():
        return {}
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    texts: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            record = parse_line(line, where)
        except DataError as error:
            if number == len(lines) and (line.startswith(_START) or _START.startswith(line)):
                logger.warning("%s: cut off while it was written; dropped, and will be asked again", where)
                os.truncate(path, sum(map(len, lines[:-1])))
                break
            raise DataError(f"{error}; repair or remove the line, or name another file") from None
        key = field(record, "key", str, where)
        texts[key] = field(record, "text", str, where)
        if not line.endswith(b"\n"):
            with open_cache(path) as file:
                append_line(file, "")
    return texts
