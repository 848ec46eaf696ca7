"""Typed functions as commands."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from interventune.storage.command_line import Count, Named, Parser, call, run

WRONG = ["", "--limit 0", "--limit 1.5", "--threshold nan", "--threshold inf", "--prompt long"]


@dataclass(frozen=True)
class Options:
    """How it is asked.

    Args:
        device: where the model runs.
        prompt: the wording.
    """

    device: str = "auto"
    prompt: Literal["plain", "short"] = "plain"


def example(
    sources: list[str],
    *,
    checkpoint: list[Named],
    limit: Count | None = None,
    all_rows: bool = False,
    threshold: float = 0.5,
    options: Options = Options(prompt="short"),
) -> dict[str, Any]:
    """Do something.

    With more words.

    Args:
        sources: what is
            read.
        checkpoint: who is asked.
        threshold: from 100% on.
    """
    if threshold > 1:
        raise ValueError("--threshold: at most 1")
    return locals()


def parsed(*argv: str) -> dict[str, Any]:
    values: dict[str, Any] = call(example, vars(Parser(example, prog="x").parse_args(argv)))
    return values


def test_values_have_the_types_of_the_signature() -> None:
    line = "a b --checkpoint n=c d --limit 3 --all-rows --threshold 1e-1 --device cpu"
    values = parsed(*f"{line} --prompt plain".split())
    expected = {"sources": ["a", "b"], "checkpoint": ["n=c", "d"], "limit": 3, "threshold": 0.1}
    expected |= {"all_rows": True, "options": Options(device="cpu")}
    assert values == expected


@pytest.mark.parametrize("wrong", [*WRONG, "--check b"])
def test_a_mistake_is_a_line_with_the_flag(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed("a", *(["--checkpoint", "b", *wrong.split()] if wrong else ()))
    error = capsys.readouterr().err
    assert (wrong.partition(" ")[0] or "--checkpoint") in error
    assert error.count("\n") == 1


def test_a_mistake_of_the_function_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(example, "x", ["a", "--checkpoint", "b", "--threshold", "2"]) == 2
    assert capsys.readouterr().err == "error: --threshold: at most 1\n"
    with pytest.raises(ValueError, match="at most"):
        run(example, "x", ["a", "--checkpoint", "b", "--threshold", "2", "--debug"])


def test_help_is_the_docstring() -> None:
    text = " ".join(Parser(example, prog="x").format_help().split())
    for part in ("With more words.", "what is read.", "from 100% on. (default: 0.5)"):
        assert part in text
    assert "How it is asked:" in text
    assert "the wording. (default: short)" in text
