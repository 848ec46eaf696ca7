"""The flags of `interventune train fit|validate|test|predict`; typed constructors define them."""

import re
from argparse import ArgumentError
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace
from pytorch_lightning.callbacks import ModelCheckpoint

from interventune.data_modules.batching.data_module import TextDataModule
from interventune.models.backbones import Backbone
from interventune.storage.command_line import HelpLayout
from interventune.storage.documents import Values, load_yaml

from .configs import CONFIGS, named_files, shortened
from .modules.fine_tuning import FineTuning
from .precision import Trainer
from .run import Run

BASE = str(CONFIGS / "base.yaml")
END = """-c takes a file, or the name of one in configs/, several times;
the last one to set a key decides.

experiments: {}

backbones: {}

example:
  interventune train {} -c stories_ibt -c tiny_roberta"""
RESUME = "To resume, or to measure as it was trained: a path, `last`, `auto` (`last` or a new run)."
LINKS: tuple[tuple[str, str, Any], ...] = (
    ("model", "backbone", None),
    ("data", "tokenizer", lambda backbone: backbone.tokenizer or backbone.checkpoint),
    ("data", "architecture", lambda backbone: backbone.architecture),
)
"""Options of model and data that the backbone sets, and how."""
Sections = dict[str, Values]


class Layout(HelpLayout, DefaultHelpFormatter):
    """The help of all our commands, with jsonargparse's types and defaults."""


class WholeWords(ArgumentParser):
    """A parser that rejects abbreviated flags, and passes this on to nested parsers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)


def parsed(command: str, arguments: Sequence[str]) -> tuple[ArgumentParser, Namespace]:
    """Return a command's parser and configuration. ValueError for a wrong key or value, in one line
    with the path of the key.
    """
    if {"-h", "--help"} & {*arguments}:
        build_parser(command, configured(arguments)).parse_args(["--help"])
    parser = build_parser(command, {})
    for section, option, compute in LINKS:
        parser.link_arguments("backbone", f"{section}.init_args.{option}", compute)
    try:
        # base.yaml comes first, so that every other file overrides it. (default_config_files would
        # be checked separately, without the required backbone.)
        config = parser.parse_args(["--config", BASE, *arguments])
    except ArgumentError as error:
        text = shortened(str(error))
        if re.match(r"backbone\..*Got value: None$|.* required: model", text):
            text = "an experiment or a backbone is missing, such as -c squad_ibt -c tiny_roberta"
        raise ValueError(f"{text} (see interventune train {command} --help)") from error
    if not 0 <= config.seed_everything < 2**32:
        raise ValueError(f"seed_everything: takes 0 to {2**32 - 1}")
    return parser, config


def build_parser(command: str, sections: Sections) -> ArgumentParser:
    """Return the parser of a command. With sections of configurations it serves for help: it has
    the flags of the classes that they name, and their values as defaults.
    """
    names = (", ".join(named_files(folder)) for folder in ("experiments", "backbones"))
    parser = WholeWords(
        prog="interventune train",
        usage=f"interventune train {command} -c EXPERIMENT -c BACKBONE [--KEY=VALUE ...]",
        epilog=END.format(*names, command),
        formatter_class=Layout,
        exit_on_error=False,
    )
    parser.add_argument("-c", "--config", action="config", help="Configuration in YAML.")
    seed = "Seed of the run, and of all that is random in model and data."
    parser.add_argument("--seed_everything", type=int, default=0, help=seed)
    options: Any = {"fail_untyped": False, "sub_configs": True}
    for section, base in (("model", FineTuning), ("data", TextDataModule)):
        if kind := named_class(sections, section):
            by_backbone = {option for linked, option, _ in LINKS if linked == section}
            parser.add_class_arguments(kind, section, skip=by_backbone, **options)
        else:
            parser.add_subclass_arguments(base, section, fail_untyped=False, required=True)
    parser.add_argument("--backbone", type=Backbone, required=True)
    parser.add_argument("--run", type=Run, default=Run())
    parser.add_argument("--ckpt_path", type=str | None, default=None, help=RESUME)
    parser.add_class_arguments(Trainer, "trainer", instantiate=False, **options)
    parser.add_class_arguments(ModelCheckpoint, "checkpoint", **options)
    for section, values in sections.items():
        for name, value in values.items():
            with suppress(KeyError):  # not a flag
                parser.set_defaults({f"{section}.{name}": value})
    return parser


def configured(arguments: Sequence[str]) -> Sections:
    """Return the settings of base.yaml and the --config files, by section; `class_path`: of model
    or data.
    """
    files = [word.removeprefix("--config=") for word in arguments if word.startswith("--config=")]
    sections: Sections = defaultdict(dict)
    for path in (BASE, *files):
        for section, value in load_yaml(path, Values).items():
            options = value if isinstance(value, dict) else {"class_path": value}
            sections[section] |= options | options.get("init_args", {})
    return sections


def named_class(sections: Sections, section: str) -> Any:
    """Return the class of model or data; None if none is named."""
    with suppress(KeyError, ImportError, AttributeError, ValueError):
        return resolve_name(sections[section]["class_path"])
