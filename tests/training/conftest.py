"""Small data and a tiny model for runs through the real command line."""

import json
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

from interventune.data_modules.schema.questions import write_records
from interventune.data_modules.stories import groups as story_groups
from interventune.data_modules.stories import questions as stories
from interventune.models.loading import load_pretrained
from interventune.training.cli import main as train
from tests.evaluation.conftest import _undrawn as _undrawn
from tests.models.tiny import at
from tests.support.processes import launch as launch_room

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]
CONFIGS = Path(__file__).resolve().parents[2] / "configs"

SIZE = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
SMALL: dict[str, dict[str, float]] = {
    "bert": SIZE,
    "roberta": SIZE
    | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1},
    **dict.fromkeys(("llama", "qwen3"), SIZE | SPECIAL | {"head_dim": 8}),
    "gpt2": {"vocab_size": 320, "n_embd": 32, "n_layer": 1} | SPECIAL,
    "xlnet": {"vocab_size": 320, "d_model": 32, "d_inner": 64, "n_layer": 1, "pad_token_id": 5},
}


def small_config(architecture: str, **changes: float) -> str:
    """The flag of that size."""
    return f"--backbone.config={json.dumps(SMALL[architecture] | changes)}"


DROPOUT = small_config("roberta", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def small_folder(folder: Path, architecture: str) -> Path:
    """Random weights of that size, as a folder of transformers."""
    load_pretrained(at("random", architecture, config=SMALL[architecture])).save_pretrained(folder)
    return folder


def resolved(capsys: Capture, *arguments: str) -> str:
    """The configuration that `--print_config` shows."""
    with pytest.raises(SystemExit) as stop:
        train([*arguments, "--print_config"])
    captured = capsys.readouterr()
    assert stop.value.code in (0, None), captured.err[-2000:]
    return captured.out


def launch(command: list[str], processes: int = 1, code: int = 0) -> str:
    """What a command prints in processes of its own, if it ends with `code`."""
    end, printed = launch_room("training", command, processes)
    assert end == code, printed[-3000:]
    return printed


def failing(**options: object) -> str:
    """The flag that disturbs a run."""
    path = "tests.training.callbacks.Failing"
    return f"--trainer.callbacks+={{class_path: {path}, init_args: {json.dumps(options)}}}"


def metrics_of(home: Path) -> dict[str, float]:
    """metrics.json of a run."""
    metrics: dict[str, float] = json.loads((home / "metrics.json").read_text())
    return metrics


def curves(home: Path, metric: str) -> list[tuple[int, float]]:
    """Step and value of a metric, as metrics.csv has them."""
    rows = pd.read_csv(home / "metrics.csv").query("metric == @metric")
    return list(zip(rows["step"], rows["value"], strict=True))


@dataclass(frozen=True)
class SmallData:
    """Files of SQuAD's and LEI's formats; no batch size divides 13 questions and 9 groups."""

    qa_train: Path
    qa_dev: Path
    groups_train: Path
    groups_dev: Path

    def flags(self, experiment: str) -> list[str]:
        """Train and validate on these files, as far as the experiment's DataModule takes them."""
        questions = [f"--data.train_qa={self.qa_train}", f"--data.val_qa={{main: {self.qa_dev}}}"]
        train, dev = self.groups_train, self.groups_dev
        groups = [f"--data.train_groups=[{train}]", f"--data.val_groups.main={dev}"]
        return [] if "choice" in experiment else questions + groups * experiment.startswith("lei")


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> SmallData:
    folder = tmp_path_factory.mktemp("data")
    names = ("qa_train", "qa_dev", "g_train", "g_dev")
    data = SmallData(*(folder / f"{name}.json" for name in names))
    write_records(islice(stories.qa_examples("train"), 40), data.qa_train)
    write_records(islice(stories.qa_examples("dev"), 13), data.qa_dev)
    write_records(islice(story_groups.groups("train"), 24), data.groups_train)
    write_records(islice(story_groups.groups("heldout"), 9), data.groups_dev)
    return data


@dataclass(frozen=True)
class Commands:
    """Arguments of one experiment on a tiny model, with all its output under a temporary folder."""

    root: Path
    data: SmallData

    def of(self, subcommand: str, experiment: str, architecture: str, *flags: str) -> list[str]:
        """The arguments; each of `flags` may be several, with spaces between."""
        tiny = [
            f"-c={CONFIGS}/experiments/{experiment}.yaml",
            f"-c={CONFIGS}/backbones/tiny_{architecture}.yaml",
            small_config(architecture),
            f"--run.root={self.root} --run.wandb=off",
            "--trainer.accelerator=cpu --trainer.precision=32-true",
            "--trainer.enable_progress_bar=false",
            *([] if "choice" in experiment else [f"--data.cache={self.root.parent / 'prepared'}"]),
            *[f"--model.reference_cache={self.root.parent}/kept"] * (experiment == "lei_few_shot"),
            *self.data.flags(experiment),
        ]
        return [subcommand, *(part for flag in (*tiny, *flags) for part in split(flag))]

    def run(self, subcommand: str, experiment: str, architecture: str, *flags: str) -> Path:
        """Run it here; the folder of the run."""
        return Path(train(self.of(subcommand, experiment, architecture, *flags)).log_dir)


def split(flags: str) -> list[str]:
    """Flags with spaces between, whose values may have spaces too."""
    return re.split(" (?=--)", flags) if flags else []


def lei(commands: Commands, version: str, *flags: str, architecture: str = "llama") -> Path:
    """Two epochs of the group losses; the folder of the run."""
    few = "--model.learning_rate=1e-3 --trainer.max_epochs=2 --data.groups_per_class=4"
    few += f" --run.version={version}"
    return commands.run("fit", "lei_few_shot", architecture, few, *flags)


@pytest.fixture
def commands(tmp_path: Path, small_data: SmallData) -> Commands:
    return Commands(tmp_path / "runs", small_data)
