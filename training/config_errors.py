"""Mistakes in a configuration, each in one line: files that the parser would not name, the parser's errors,
and values of the trainer that Lightning meets with a traceback."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FLAGS = ("-c", "--config")
OBJECTS = ("trainer", "data", "run", "backbone", "checkpoint", "model")
BOILERPLATE = re.compile(
    r"Does not validate|Subtypes:|Errors:|Given value|Problem with given class_path|Parser key"
    r"|Expected a path but|Expected a <class 'NoneType'>"
)

PLAIN = {
    r"(Namespace|NestedArg)\(.*": "...",
    r"<class '([\w.]+)'>": r"\1",
    r"a typing\.Literal": "one of ",
    r"\ba int\b": "an int",
    r"\. Got value: ": ", got ",
}
"""How jsonargparse says something, and plainer words."""


def named_configs(arguments: Sequence[str]) -> list[str]:
    """The arguments with the names of shipped configurations replaced by their files: `-c lei_few_shot`.

    Raises:
        ValueError: neither a file nor a shipped configuration; with the nearest names.
    """
    found = list(arguments)
    for at, (flag, following) in enumerate(zip(arguments, [*arguments[1:], ""], strict=True)):
        name, equals, value = flag.partition("=")
        if name in FLAGS and equals:
            found[at] = f"{name}={shipped(value, 'experiments', 'backbones')}"
        elif name in FLAGS and following:
            found[at + 1] = str(shipped(following, "experiments", "backbones"))
    return found


def shipped(name: str, *folders: str) -> Path:
    """A file, or the configuration of that name in one of the folders of configs/.

    Raises:
        ValueError: neither is there; with the nearest names.
    """
    files = {path.stem: path for folder in folders for path in (CONFIGS / folder).glob("*.yaml")}
    if not Path(name).exists() and name in files:
        return files[name]
    if not Path(name).exists():
        near = difflib.get_close_matches(Path(name).stem, files, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{name}: no such file or shipped configuration{hint}")
    return Path(name)


def check_config_files(arguments: Sequence[str]) -> None:
    """Raise ValueError for a file that is no YAML object, naming it and the line.

    A file that does not exist is left to the parser, which names it.
    """
    for path in config_files(arguments):
        if path.is_file():
            _check(path)


def config_files(arguments: Sequence[str]) -> Iterator[Path]:
    """The files behind `-c FILE`, `--config FILE` and the like with `=`.

    >>> [str(path) for path in config_files(["fit", "-c", "a.yaml", "--config=b.yaml", "--run.name", "c"])]
    ['a.yaml', 'b.yaml']
    """
    for flag, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = flag.partition("=")
        if name in FLAGS and (equals or following):
            yield Path(value if equals else following)


def _check(path: Path) -> None:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file in UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{path}: {line}not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, yaml.YAMLError) else "nested too deeply"
        raise ValueError(f"{path}: not YAML: {reason}") from None
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"{path}: expected keys such as `trainer:`, found {type(content).__name__}")
    for name in OBJECTS:
        value = (content or {}).get(name)
        if value is not None and not isinstance(value, (dict, str)):
            raise ValueError(f"{path}: {name} must be an object with keys of its own, found {value!r}")


def one_line(message: str) -> str:
    """An error of jsonargparse as the path of the key and what is wrong with it.

    >>> one_line('''Parser key "model":
    ...   Does not validate against any of the Union subtypes
    ...   Errors:
    ...     - Problem with given class_path 'training.modules.advice.LEIModule':
    ...         Parser key "loss":
    ...           Problem with given class_path 'losses.group.GroupLoss':
    ...             Option 'ethical_wieght' is not accepted
    ...     - Expected a <class 'NoneType'>
    ...   Given value: NestedArg(key='loss.ethical_wieght', val='2')''')
    "model.loss: option 'ethical_wieght' is not accepted (losses.group.GroupLoss)"
    """
    if "\n" not in message and "Parser key" not in message:
        return message
    key = ".".join(re.findall(r'Parser key "([^"]+)"', message))
    value = re.search(r"Given value: (?!Namespace|NestedArg|\{)(.*)", message)
    lines = [re.sub(r'^(- )?(Parser key "[^"]+": ?)?', "", line.strip()) for line in message.splitlines()]
    reasons = dict.fromkeys(line for line in lines if line and not BOILERPLATE.match(line))
    text = "; ".join(reasons)
    for pattern, plain in PLAIN.items():
        text = re.sub(pattern, plain, text)
    classes = re.findall(r"Problem with given class_path '([^']+)'", message)
    if value and ", got " not in text:
        text += f", got {value[1]}"
    elif classes and ", got " not in text:
        text += f" ({classes[-1]})"
    return f"{key}: {text[:1].lower()}{text[1:]}" if key else text


def check_trainer_keys(trainer: Any) -> None:
    """ValueError for a key of the trainer's configuration with a value that cannot work; by name."""
    if trainer.accumulate_grad_batches < 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches must be at least 1, got {trainer.accumulate_grad_batches}"
        )
    devices = trainer.devices
    words = isinstance(devices, str) and devices != "auto"
    if words and not all(part.strip().lstrip("-").isdigit() for part in devices.split(",")):
        raise ValueError(f"trainer.devices: {devices!r} is neither auto, nor a number, nor a list of indices")
