"""Steps over batches of unequal sizes, and shorter last steps, have the gradient of one batch."""

from typing import Any

import pytest

from interventune.training.cli import main as train
from tests.training.callbacks import WholeBatch
from tests.training.conftest import Commands, launch

CHECKED = "--trainer.callbacks+={class_path: tests.training.callbacks.WholeBatch}"
CHECKED += " --trainer.precision=64-true --trainer.max_epochs=1"
BY_FOUR = "--data.qa_batch_size=4 --data.val_qa={}"
STORIES = f"--data.train_qa=stories:mixed_train --data.limit_train_qa=5 {BY_FOUR}"
STORIES += " --data.encoding.max_length=160"
QUESTIONS = f"--data.limit_train_qa=17 {BY_FOUR}"
GROUPS = "--data.limit_train_groups=14 --data.val_groups={} --data.groups_per_class=1"
GROUPS += f" --data.qa_every=2 --data.limit_train_qa=9 {BY_FOUR}"
ADVICE = f"{GROUPS} --data.anchor_unadvised=0.2 --model.loss.mass_weight=0.5"
SUMS = f"{GROUPS} --data.anchor_unadvised=0.2 --model.loss.form=probability"
COPIES = f"{GROUPS} --data.random_advice_copies=2"
CHOICES = "--data.train_choices=[stories:choices_train] --data.val_choices={} --data.limit_train=17"
CHOICES += " --data.batch_size=4 --model.gap_weight=0.5"
BY_THREE = "--trainer.accumulate_grad_batches=3"
CASES = dict.fromkeys(("stories_ibt bert", "stories_ibt xlnet", "stories_ibt gpt2"), STORIES)
CASES |= {"squad bert": QUESTIONS, "stories_ibt roberta": f"{STORIES} --model.tagged=all"}
CASES |= {"lei_few_shot roberta": ADVICE, "lei_few_shot llama": f"{ADVICE} --model.loss.form=log"}
CASES |= {"lei_few_shot bert": SUMS, "lei_planted roberta": COPIES}
CASES |= dict.fromkeys(("multiple_choice roberta", "multiple_choice llama"), CHOICES)


def steps(commands: Commands, experiment: str, architecture: str, *flags: str) -> list[int]:
    """Train, and check every step's gradient; the numbers of their batches."""
    trainer: Any = train(commands.of("fit", experiment, architecture, CHECKED, *flags))
    (checked,) = (part for part in trainer.callbacks if isinstance(part, WholeBatch))
    return checked.steps


@pytest.mark.parametrize("case", CASES)
def test_each_gradient(case: str, commands: Commands) -> None:
    sizes = steps(commands, *case.split(), CASES[case], BY_THREE)
    assert sizes[0] == 3
    assert sizes[-1] in (1, 2)


def test_an_epoch_that_is_cut_ends_with_a_shorter_step(commands: Commands) -> None:
    cut = f"{BY_THREE} --trainer.limit_train_batches=4 --data.num_workers=1"
    assert steps(commands, "squad", "bert", QUESTIONS, cut) == [3, 1]


def test_the_number_of_batches_may_change_between_epochs(commands: Commands) -> None:
    path = "pytorch_lightning.callbacks.GradientAccumulationScheduler"
    scheduler = f"{{class_path: {path}, init_args: {{scheduling: {{0: 2, 1: 3}}}}}}"
    more = f"--trainer.callbacks+={scheduler} --trainer.max_epochs=2 --model.schedule=constant"
    assert steps(commands, "multiple_choice", "bert", CHOICES, more) == [2, 2, 1, 3, 2]


def test_two_processes_have_it_too(commands: Commands) -> None:
    """Which take windows of questions and groups of classes in unequal numbers."""
    two = "--trainer.devices=2 --trainer.strategy=ddp --trainer.accumulate_grad_batches=2"
    launch(commands.of("fit", "lei_few_shot", "roberta", CHECKED, ADVICE, two), processes=2)
