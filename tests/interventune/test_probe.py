"""Probes in other trainings: what `evaluate` says of the saved model; changes since the start."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import BertForSequenceClassification, TrainerCallback, TrainingArguments
from transformers.trainer_callback import TrainerControl, TrainerState

import interventune
from interventune.probe import together
from tests.support.processes import on_two_ranks

Folders = dict[str, Path]
Patch = pytest.MonkeyPatch
Table = dict[tuple[str, ...], list[float]]
STORIES, GROUPS, LIMIT = "stories:conversation_dev", "stories:heldout", 4
SPANS, TEXTS = transformers.AutoModelForQuestionAnswering, transformers.AutoModelForCausalLM
CLASSES = {"bert": SPANS, "llama": TEXTS}
SCORE = {"val/qa/f1": 1.0, "val/bias/ethical/mu": -0.5}
BY = ["class", "coverage", "variant", "subject", "answer_type", "domain"]
BY += ["embedding", "reference", "layer", "stories"]
"""Dimensions of reports."""


def opened(folder: Path) -> tuple[Any, Any]:
    """As trainers have them: in training mode."""
    model = CLASSES[folder.name].from_pretrained(folder).train()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def tuned(model: Any) -> None:
    """As after some training."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn(weight.shape, generator=generator))


def small(*sources: str, **options: Any) -> Any:
    return interventune.Probe(*(sources or (GROUPS, STORIES)), limit=LIMIT, **options)


def table(protocol: str, source: str, *folders: Path, **flags: Any) -> Table:
    """Value, low and high of the last folder, and of its change, by what tells cells apart."""
    named = [f"{name}={folder}" for name, folder in zip("ab", folders, strict=True)]
    flags |= {"checkpoint": named, "data": [source], "limit": LIMIT, "device": "cpu"}
    rows = interventune.evaluate(protocol, **flags).results.frame.query("checkpoint == 'b'")
    by = ["measure", "against", *(name for name in BY if name in rows)]
    cells = (tuple(filter(None, map(str, cell))) for cell in rows[by].to_numpy())
    return dict(zip(cells, rows[["value", "low", "high"]].to_numpy().tolist(), strict=True))


@pytest.mark.parametrize("name", ["bert", "llama", "lora"])
def test_numbers_are_those_of_evaluate(name: str, folders: Folders, tmp_path: Path) -> None:
    start = folders["llama" if name == "lora" else name]
    model, tokenizer = opened(start)
    if name == "lora":
        peft = pytest.importorskip("peft")
        lora: Any = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
        model = peft.get_peft_model(model, peft.LoraConfig(lora_dropout=0.5, **lora)).train()
    probe = small(score=SCORE)
    probe.ask(model, tokenizer)
    tuned(model)
    values = probe.ask(model, tokenizer)
    model.save_pretrained(tmp_path / "now")
    tokenizer.save_pretrained(tmp_path / "now")
    near = {"abs": 1e-5 if name == "lora" else 1e-6, "nan_ok": True}  # LoRA is merged there
    expected, both = {}, (start, tmp_path / "now")
    answers = table("faithfulness", STORIES, *both, variants=["os", "ts_r"])
    for (measure, *place), numbers in answers.items():
        if place[-1] == "os" and measure in ("f1", "em", "unknown"):
            expected[f"qa/{measure}", len(place) == 2] = numbers
        scored = measure.startswith("recall_over")  # needs scores of unknown
        if place in (["os+ts_r"], ["a", "os+ts_r"]) and not scored:
            expected[f"abstention/{measure.removeprefix('abstention_')}", len(place) == 2] = numbers
    for (measure, *place), numbers in table("bias", GROUPS, *both).items():
        if place in (["a", "ethical"], ["none"]) and measure in ("mu", "mean_abs_c", "mass"):
            expected[f"bias/{place[-1]}/{measure}", len(place) == 2] = numbers
    shift = table("shift", STORIES, *both, variants=["ts_r"])
    layers = model.config.num_hidden_layers
    for ours, theirs in (("cls", "cls"), ("tokens", "common")):
        expected[f"shift/{ours}/ts_r/mean", False] = shift["cosine", "ts_r", theirs, "last"]
        expected[f"shift/{ours}/ts_r/mean", True] = shift["cosine", "a", "ts_r", theirs, "last"]
        place = theirs, "a", str(layers)
        expected[f"shift/{ours}/start/mean", False] = shift["cosine", *place]
        expected[f"shift/{ours}/start/cka", False] = shift["cka", *place]
    assert len(expected) == 6 + 15 + 6 + 8  # who never abstains has no precision, and so no change
    for (key, change), numbers in expected.items():
        columns = ["change", "change_low", "change_high"] if change else ["value", "low", "high"]
        shown = probe.table.loc[f"val/{key}", columns].tolist()
        assert shown == pytest.approx(numbers, **near), key
        assert values[f"val/{key}" + "/change" * change] == pytest.approx(numbers[0], **near)
    assert values["val/score"] == values["val/qa/f1"] - 0.5 * values["val/bias/ethical/mu"]


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    (STORIES, {"measures": ["biass"]}, "measures: .* 'qa', 'abstention' or 'shift', found 'biass'"),
    (STORIES, {"measures": ["bias"]}, "measures: bias needs a source with groups"),
    ("stories:choices_dev", {}, "stories have no questions 'choices_dev'"),
    ("nowhere.json", {}, "nowhere.json: no such file"),
    ("choices.jsonl", {}, "choices.jsonl: holds choices, but questions are needed"),
    (STORIES, {"limit": -1}, "limit: should be greater"),
    (STORIES, {"score": {"val/qa/f1": "much"}}, "score: .* number"),
    (STORIES, {"score": {"val/qa/f2": 1.0}}, "score: no measure gives 'val/qa/f2'; there are val"),
    (STORIES, {"model": BertForSequenceClassification}, "is no model for question answering"),
    (STORIES, {"model": lambda _: torch.nn.Linear(2, 2)}, "no model of transformers in Linear"),
]


@pytest.mark.parametrize(("source", "options", "message"), MISTAKES)
def test_mistakes_are_one_line(
    source: str, options: Any, message: str, folders: Folders, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("choices.jsonl").write_text('{"goal": "eat", "sol1": "a", "sol2": "b", "label": 0}\n')
    model, tokenizer = opened(folders["bert"])
    kind = options.get("model", lambda _: model)
    options = {name: value for name, value in options.items() if name != "model"}
    with pytest.raises(ValueError, match=message) as error:
        interventune.Probe(source, **options).ask(kind(model.config), tokenizer)
    assert "\n" not in str(error.value)


class Tuning(pl.LightningModule):
    """A user's module, which knows nothing of us."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model, self.tokenizer = opened(folder)
        self.model.activation_checkpointing_enable()
        self.losses: list[float] = []

    def training_step(self, ids_BT: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(ids_BT, labels=ids_BT).loss
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def units(model: Any) -> list[tuple[Any, bool]]:
    """Where each unit of FSDP2 is resharded after its forward, and whether it is unsharded now."""
    states = [part._get_fsdp_state() for part in model.modules() if isinstance(part, FSDPModule)]
    groups = [group for state in states for group in state._fsdp_param_groups]
    return [(group.post_forward_mesh_info, group.is_unsharded) for group in groups]


def ask_on_rank(rank: int, folder: str) -> None:
    """What users of transformers, of Lightning and of FSDP see in one of two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", timedelta(minutes=1), 2, rank)
    answers = {}
    for name in CLASSES:
        model, tokenizer = opened(Path(folder) / name)
        probe = interventune.TransformersProbe(GROUPS, STORIES, limit=LIMIT)
        arguments, state = (TrainingArguments(folder, use_cpu=True, report_to=[]), TrainerState())
        call: Any = (arguments, state, TrainerControl())
        whole = torch.nn.parallel.DistributedDataParallel(model)
        about: Any = {"model": whole, "processing_class": tokenizer, "metrics": (metrics := {})}
        probe.on_train_begin(*call, **about)
        tuned(model)
        probe.on_evaluate(*call, **about)  # the same step
        state.global_step = 1
        probe.on_evaluate(*call, **about)
        answers[name] = {key.removeprefix("eval_"): value for key, value in metrics.items()}
        again = opened(Path(folder) / name)[0]
        mesh = init_device_mesh("cpu", (2,))
        layers = next(part for part in again.modules() if isinstance(part, torch.nn.ModuleList))
        for layer, after in zip([*layers, again], (1, True, None), strict=True):
            fully_shard(layer, mesh=mesh, reshard_after_forward=after)
        again(torch.ones(1, 4, dtype=torch.long))  # the root stays unsharded
        layers[1].unshard()
        before = units(again)
        with pytest.raises(ZeroDivisionError), together(again):
            1 / 0  # noqa: B018
        assert units(again) == before
        answers[f"fsdp {name}"] = small().ask(again, tokenizer)
        assert units(again) == before
        again(torch.ones(1, 4, dtype=torch.long))  # it still collects its weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_RANK", str(rank))  # as a launcher does
        probe = interventune.LightningProbe(GROUPS, STORIES, limit=LIMIT)
        silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
        how: Any = {"accelerator": "cpu", "strategy": "ddp", "devices": 2}
        trainer = pl.Trainer(callbacks=[probe], **silent, **how)
        loader = torch.utils.data.DataLoader([0.0, 0.0])
        trainer.validate(Tuning(Path(folder) / "bert"), loader, verbose=False)
    answers["lightning"] = {name: float(value) for name, value in trainer.callback_metrics.items()}
    torch.save(answers, Path(folder) / f"{rank}.pt")


def test_two_processes_share_what_is_asked_and_know_all_numbers(folders: Folders) -> None:
    on_two_ranks(ask_on_rank, root := folders["bert"].parent)
    expected = {}
    for name, folder in folders.items():
        model, tokenizer = opened(folder)
        probe = small()
        expected[f"fsdp {name}"] = probe.ask(model, tokenizer)
        tuned(model)
        expected[name] = probe.ask(model, tokenizer)
    expected["lightning"] = expected["fsdp bert"]
    for rank in (0, 1):
        answers = torch.load(root / f"{rank}.pt")
        for name, numbers in expected.items():
            assert answers[name] == pytest.approx(numbers, abs=1e-6, nan_ok=True), name


@pytest.fixture
def example(tmp_path: Path, monkeypatch: Patch) -> Any:
    """Runs an example with fewer questions."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: Any) -> Any:
        text = (Path(__file__).parents[2] / "examples" / f"probe_{name}.py").read_text()
        text = text.replace("limit=500", "limit=24").replace("limit=50", "limit=3")
        exec(compile(text, name, "exec"), names := {"__name__": name})
        return names["main"](*map(str, arguments[:-1]), arguments[-1])

    return run


@pytest.mark.parametrize("kind", ["trainer", "sft", "dpo"])
def test_examples_with_trainers_choose(kind: str, example: Any, folders: Folders) -> None:
    if kind == "trainer":
        trainer: transformers.Trainer = example("trainer", folders["bert"], "out", 6)
    else:
        pytest.importorskip("trl")
        trainer = example("trl", kind, folders["llama"], "out", 6)
    (probe,) = (item for item in trainer.callback_handler.callbacks if hasattr(item, "ask"))
    rows = [row for row in trainer.state.log_history if "eval_val/score" in row]
    scores = {row["step"]: row["eval_val/score"] for row in rows}
    assert len(scores) == 4  # the start, and three evaluations
    best = trainer.state.best_metric
    assert best == max(list(scores.values())[1:])
    assert scores[int(trainer.state.best_model_checkpoint.rpartition("-")[2])] == best
    assert probe.ask(trainer.model)["val/score"] == pytest.approx(best, abs=1e-6)
    seen, reporter = list[dict[str, float]](), TrainerCallback()
    reporter.on_log = lambda *_, logs, **__: seen.append(logs)  # type: ignore[method-assign]
    trainer.add_callback(reporter)
    metrics = trainer.evaluate()
    assert seen[-1]["eval_val/score"] == metrics["eval_val/score"]


def test_the_example_of_lightning_chooses_and_logs(example: Any, folders: Folders) -> None:
    trainer = example("lightning", folders["llama"], "out", 2)
    scores = pd.read_csv(Path(trainer.logger.log_dir) / "metrics.csv")["val/score"].dropna()
    assert len(scores) == 3  # the start, and two epochs
    assert trainer.checkpoint_callback.best_model_score == pytest.approx(max(scores[1:]))
