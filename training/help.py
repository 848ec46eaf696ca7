"""The help of `interventune train fit|validate|test|predict`, for the classes named in
configurations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from interventune.storage.documents import load_yaml
from interventune.training.configs import CONFIGS

Sections = dict[str, dict[str, Any]]
END = """-c takes a file, or the name of one in configs/, several times;
the last one to set a key decides.

experiments: {}

backbones: {}

example:
  interventune train {} -c stories_ibt -c tiny_roberta"""
RESUME = "Checkpoint to use, in `fit` to resume: a path, `last`, or `auto` (`last` or a new run)."


def configured(arguments: Sequence[str]) -> Sections:
    """Return the settings of base.yaml and the --config files, by section; `class_path`: of model
    or data.
    """
    sections: Sections = defaultdict(dict)
    named = [word.removeprefix("--config=") for word in arguments if word.startswith("--config=")]
    for path in (str(CONFIGS / "base.yaml"), *named):
        for section, value in load_yaml(path, dict[str, Any]).items():
            options = value if isinstance(value, dict) else {"class_path": value}
            sections[section] |= options | options.get("init_args", {})
    return sections


def named_class(sections: Sections, section: str) -> Any:
    """Return the class of model or data; None if none is named."""
    with suppress(KeyError, ImportError, AttributeError, ValueError):
        return resolve_name(sections[section]["class_path"])


def describe(parser: Any, command: str, sections: Sections) -> None:
    """Complete the help of a command: show configured values as defaults, and Lightning's flags
    last.
    """
    names = (
        sorted(path.stem for path in (CONFIGS / x).glob("*.yaml"))
        for x in ("experiments", "backbones")
    )
    parser.usage = f"interventune train {command} -c EXPERIMENT -c BACKBONE [--KEY=VALUE ...]"
    parser.epilog = END.format(*map(", ".join, names), command)
    parser._option_string_actions["--ckpt_path"].help = RESUME
    for key, value in [
        (f"{x}.{name}", value) for x in sections for name, value in sections[x].items()
    ]:
        with suppress(KeyError):  # not a flag
            parser.set_defaults({key: value})
    groups = parser._action_groups
    groups.remove(parser._links_group)
    for section in ("trainer", "checkpoint"):
        groups.append(groups.pop(groups.index(parser.groups[section])))
