"""Original and intervention-based training through the command line, for each kind of heads."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from data_modules.records import write_records
from data_modules.sources import read_questions
from evaluation.__main__ import main as evaluate
from tests.evaluation.cells import Cells
from tests.training.conftest import Commands, metrics_of
from training.cli import main as train


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Conversations as the rows that `perturb` writes: 40 to train on, 13 to validate on."""
    folder = tmp_path_factory.mktemp("rows")
    for name, count in (("train", 40), ("dev", 13)):
        examples = islice(read_questions(f"stories:mixed_{name}"), count)
        write_records(examples, folder / f"{name}.jsonl")
    return {name: folder / f"{name}.jsonl" for name in ("train", "dev")}


def arguments(commands: Commands, rows: dict[str, Path], *command: str) -> list[str]:
    """The later flags of one name win."""
    data = (f"--data.train_qa={rows['train']}", f"--data.val_qa={{main: {rows['dev']}}}")
    sizes = ("--data.encoding.max_length=160",)
    return commands.of(*command[:3], *data, *sizes, *command[3:])


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_from_fit_to_faithfulness_and_back(
    architecture: str, commands: Commands, rows: dict[str, Path], tmp_path: Path
) -> None:
    flags = ["--trainer.max_epochs=1", "--model.learning_rate=1e-3"]
    fit = arguments(commands, rows, "fit", "stories_ibt", architecture, *flags)
    train(fit)
    home = commands.root / "stories_ibt" / "version_0"
    after_fit = metrics_of(home)
    last = home / "checkpoints" / "last.ckpt"
    heads = "xlnet" if architecture == "xlnet" else "rationale"
    assert torch.load(last, weights_only=True)["interventune"]["heads"] == heads
    for variant in ("ts", "ts_r", "ts_r_aug"):
        assert after_fit[f"val/qa/{variant}/n"] > 0
        assert -1 <= after_fit[f"val/shift/cls/{variant}/mean"] <= 1
        assert -1 <= after_fit[f"val/shift/tokens/{variant}/macro"] <= 1
    assert after_fit["val/qa/n"] == 13

    # From the checkpoint file alone, in another room, the same numbers.
    report = tmp_path / "report"
    variants = ["--variants", "os", "ts", "ts_r", "ts_r_aug"]
    sources = ["--checkpoint", f"ibt={last}", "--data", str(rows["dev"])]
    assert evaluate(["faithfulness", *sources, *variants, "--output", str(report)]) == 0
    cells = Cells(report)
    for variant, name in (("os", ""), ("ts", "ts/"), ("ts_r", "ts_r/"), ("ts_r_aug", "ts_r_aug/")):
        cell = dict.fromkeys(cells.by, "") | {"checkpoint": "ibt", "variant": variant}
        for metric in ("em", "f1", "unknown"):
            expected = after_fit[f"val/qa/{name}{metric}"]
            assert cells(metric, **cell) == pytest.approx(expected, abs=1e-6)
        assert cells.n("em", **cell) == after_fit[f"val/qa/{name}n"]

    train([*fit, "--trainer.max_epochs=2", "--ckpt_path=last"])
    assert metrics_of(home)["step"] == 2 * after_fit["step"]


def test_cosines_are_of_states_in_float32_whatever_trains(commands: Commands, rows: dict[str, Path]) -> None:
    """bfloat16 would move them by some 1e-3, more than interventions move some."""
    found = []
    for precision in ("32-true", "bf16-mixed"):
        flags = [f"--trainer.precision={precision}", f"--run.name={precision}", "--seed_everything=3"]
        train(arguments(commands, rows, "validate", "stories_ot", "bert", *flags))
        metrics = metrics_of(commands.root / precision / "version_0")
        found.append({key: value for key, value in metrics.items() if key.startswith("val/shift/")})
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) > 4
    for key, value in found[0].items():
        assert found[1][key] == pytest.approx(value, abs=1e-6), key


def test_a_plain_span_model_refuses_yes_and_no(commands: Commands, rows: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="AnswerModule"):
        train(arguments(commands, rows, "fit", "squad", "bert"))
