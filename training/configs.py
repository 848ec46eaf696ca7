"""Shipped configurations by name, duplicate keys, and jsonargparse's errors in one line."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from interventune.storage.command_line import did_you_mean
from interventune.storage.documents import Values, load_yaml

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FLAGS = ("-c", "--config")
BOILERPLATE = re.compile(
    r"Does not validate|Subtypes:|Errors:|Given value|Problem with given class_path|Parser "
    r"key|Subclass types"
    r"|a class path \(str\)|a dict with|Not a valid subclass|Expected a path|Expected a NoneType"
)
"""Lines of jsonargparse's errors that contain neither the key nor the problem."""


def checked_configs(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--config=FILE` for every configuration, including named ones.
    ValueError, with the line: no such file or shipped configuration, or a file that is not a YAML
    object.

    >>> [Path(word).name for word in checked_configs(["fit", "-c", "squad", "--config=bert_base"])]
    ['fit', 'squad.yaml', 'bert_base.yaml']
    """
    checked = list[str]()
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in FLAGS and (value := value if equals else next(words, "")):
            path = shipped(value, "experiments", "backbones")
            load_yaml(path, Values | None)  # type: ignore[arg-type]
            word = f"--config={path}"
        checked.append(word)
    return checked


def shipped(name: str, *folders: str) -> Path:
    """Return a file, or the configuration of that name in folders of configs/; ValueError without
    either. A folder of that name, such as an experiment's runs, hides no configuration.
    """
    if os.path.exists(name) and not os.path.isdir(name):
        return Path(name)
    files = named_files(*folders)
    if name not in files:
        near = did_you_mean(Path(name).stem, files)
        raise ValueError(f"{name}: no such file or shipped configuration{near}")
    return files[name]


def named_files(*folders: str) -> dict[str, Path]:
    """Return the files in folders of configs/ by name, sorted."""
    paths = [path for folder in folders for path in sorted((CONFIGS / folder).glob("*.yaml"))]
    return {path.stem: path for path in paths}


def shortened(message: str) -> str:
    """Shorten an error of jsonargparse to the key and its problem, without irrelevant alternatives.

    >>> shortened('''Parser key "model":
    ...   Does not validate against any of the Union subtypes
    ...   Errors:
    ...     - Problem with given class_path 'interventune.training.modules.advice.LEIModule':
    ...         Parser key "loss":
    ...           Problem with given class_path 'interventune.losses.group.GroupLoss':
    ...             Option 'ethical_wieght' is not accepted
    ...     - Expected a <class 'NoneType'>''')
    "model.loss: Option 'ethical_wieght' is not accepted"
    """
    message = re.sub(r"<class '(\w+)'>", r"\1", message.replace("typing.Literal", "choice of "))
    key = ""
    for name in re.findall(r'Parser key "([^"]+)"', message):
        if not f".{key}".endswith(f".{name}"):  # some repeat the parent key
            key = name if not key or name.startswith(f"{key}.") else f"{key}.{name}"
    if not key and "\n" not in message:
        return message
    message = message.replace("Expected a dict", "Expected a dict, as in --KEY.NAME=VALUE")
    lines = [
        re.sub(r'^(- )?(Parser key "[^"]+": ?)?', "", line.strip()) for line in message.splitlines()
    ]
    reasons = dict.fromkeys(line for line in lines if line and not BOILERPLATE.match(line))
    value = re.search(r"Given value: (?!Namespace|NestedArg|\{)(.*)", message)
    got = f"got {value[1]}" if value else "see --help"
    text = "; ".join(reasons) or f"not valid, {got}"
    return f"{key}: {text}" if key else text
