"""The model of multiple choice against transformers' own encoders, and its checkpoints."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from models.backbones import Backbone
from models.checkpoint import check_ckpt, describe, fingerprint, load_qa, starting_model
from models.checkpoint_file import KEY, CheckpointError
from models.choice_checkpoint import load_choice
from models.export import export
from models.heads.choice import ChoiceModel, Pooling, build_choice_model, masked_mean
from models.heads.encoder import EncoderModel
from tests.models.tiny import NAMES, answer_model, backbone, model, rows


def choice_model(name: str, pooling: Pooling = "masked", seed: int = 0) -> ChoiceModel:
    """In evaluation mode, with weights large enough that inputs matter."""
    torch.manual_seed(seed)
    built = build_choice_model(backbone(name), pooling=pooling).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(2).add_(0.05 * torch.randn_like(parameter))
    return built


def questions(*, width: int = 0, left: bool = False) -> dict[str, Tensor]:
    """Two questions with three choices each."""
    flat = rows([12, 7, 9, 5, 11, 8], width=width, left=left)
    return {key: value.view(2, 3, -1) for key, value in flat.items()}


def save(folder: Path, built: EncoderModel) -> Path:
    content = {
        "state_dict": {f"model.{key}": value for key, value in built.state_dict().items()},
        "global_step": 12,
        KEY: describe(built, {"tokenizer.json": "{}"}, {"max_length": 100}),
    }
    torch.save(content, folder / "last.ckpt")
    return folder / "last.ckpt"


def start(path: Path, architecture: str) -> Backbone:
    return Backbone(architecture=architecture, checkpoint=str(path))  # type: ignore[arg-type]


def told(path: Path, load: Callable[[], object]) -> str:
    """What the user reads about `path`: one line that names it."""
    with pytest.raises(CheckpointError) as caught:
        load()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("pooling", ["masked", "parity"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_are_those_of_a_naive_loop(name: str, pooling: Pooling, tmp_path: Path) -> None:
    """transformers' encoder, one row at a time; the mean in plain Python's order."""
    built, inputs = choice_model(name, pooling), questions(width=16)
    built.encoder.save_pretrained(tmp_path)
    naive = AutoModel.from_pretrained(tmp_path).eval()
    wanted = torch.empty(2, 3)
    for b in range(2):
        for n in range(3):
            row = {key: value[b, n][None] for key, value in inputs.items()}
            if not built.segments:
                del row["token_type_ids"]
            hidden_TD = naive(**row).last_hidden_state[0]
            length = int(row["attention_mask"].sum()) if pooling == "masked" else 16
            mean_D = sum(hidden_TD[t] for t in range(length)) / length
            wanted[b, n] = mean_D @ built.choice_head.weight[0] + built.choice_head.bias[0]
    found = built(inputs)
    assert (found.shape, found.dtype) == ((2, 3), torch.float32)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
@torch.no_grad()
def test_padding_counts_with_parity_only(name: str) -> None:
    narrow, wide = questions(), questions(width=32)
    masked, parity = choice_model(name), choice_model(name, "parity")
    assert fingerprint(masked) == fingerprint(parity)
    torch.testing.assert_close(masked(narrow), masked(wide), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(parity(narrow), parity(wide), atol=1e-3)
    if name == "xlnet":
        left = questions(width=32, left=True)
        torch.testing.assert_close(masked(narrow), masked(left), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_permuting_choices_permutes_logits() -> None:
    built, inputs = choice_model("bert"), questions()
    order = [2, 0, 1]
    torch.testing.assert_close(
        built({key: value[:, order] for key, value in inputs.items()}), built(inputs)[:, order]
    )


@torch.no_grad()
def test_worked_rows(shared: Path) -> None:
    """The worked example gives rows and logits, not weights: what can be held against it is that the two
    means differ on these rows, and that its logits and probabilities are on our scale."""
    path = shared / "oracle" / "protocols" / "ai2_tiny.json"
    if not path.exists():
        pytest.skip(f"needs {path}")
    example = json.loads(path.read_text())
    inputs = {key: torch.tensor(example[key])[None] for key in ("input_ids", "attention_mask")}
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    masked, parity = choice_model("roberta"), choice_model("roberta", "parity")
    assert not torch.allclose(masked(inputs), parity(inputs), atol=1e-4)
    hidden = parity.encode({key: value[0] for key, value in inputs.items()})
    torch.testing.assert_close(parity(inputs)[0], parity.choice_head(hidden.mean(1)).squeeze(1))
    logits = torch.tensor(example["logits_unmasked_mean(authors)"])
    torch.testing.assert_close(logits.softmax(-1), torch.tensor(example["softmax"]))


def test_a_fresh_head_is_small_and_reproducible() -> None:
    heads = []
    for _ in range(2):
        torch.manual_seed(3)
        config = {"hidden_size": 512, "num_attention_heads": 4, "initializer_range": 0.1}
        heads.append(build_choice_model(backbone("bert", config=config)).choice_head)
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert heads[0].weight.std().item() == pytest.approx(0.1, rel=0.2)
    assert not heads[0].bias.any()


def test_the_head_computes_in_float32_under_autocast() -> None:
    built = choice_model("bert")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_BN = built(questions())
    assert logits_BN.dtype == torch.float32
    assert not torch.equal(logits_BN, logits_BN.bfloat16().float())
    assert choice_model("bert").bfloat16()(questions()).dtype == torch.float32


def test_a_row_without_tokens_has_no_mean_but_zero() -> None:
    hidden = torch.ones(1, 4, 2)
    assert masked_mean(hidden, torch.zeros(1, 4)).tolist() == [[0, 0]]


@pytest.mark.parametrize("pooling", ["masked", "parity"])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_checkpoint_stands_alone(name: str, pooling: Pooling, tmp_path: Path) -> None:
    built, inputs = choice_model(name, pooling), questions(width=16)
    path = save(tmp_path, built)
    loaded = load_choice(str(path))
    assert torch.equal(loaded.model(inputs), built(inputs))
    assert (loaded.model.pooling, loaded.model.training) == (pooling, False)
    assert (loaded.tokenizer, loaded.encoding) == ({"tokenizer.json": "{}"}, {"max_length": 100})
    assert check_ckpt(path, name, "choice") == 12
    again = build_choice_model(start(path, name), pooling=pooling)
    assert again.training
    assert fingerprint(again) == fingerprint(built)


def test_who_cannot_use_a_choice_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path, choice_model("bert"))
    assert "chooses among given choices" in told(path, lambda: load_qa(str(path)))
    assert "no span head can be made of" in told(path, lambda: starting_model(start(path, "bert")))
    assert "no counterpart" in told(path, lambda: export(str(path), tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()
    message = told(path, lambda: build_choice_model(start(path, "bert"), pooling="parity"))
    assert "pooling='masked', the configuration asks for 'parity'" in message
    assert "'choice' heads, the configuration asks for 'span'" in told(
        path, lambda: check_ckpt(path, "bert", "span")
    )


def test_options_of_another_version(tmp_path: Path) -> None:
    path = save(tmp_path, choice_model("bert"))
    content = torch.load(path, weights_only=True)
    content[KEY]["head_options"] = {"pooling": "max"}
    torch.save(content, path)
    assert "pooling must be masked or parity" in told(path, lambda: load_choice(str(path)))


@torch.no_grad()
def test_other_checkpoints_give_their_encoder_and_do_not_choose(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    others: list[tuple[str, EncoderModel]] = [
        ("roberta", model("roberta")),
        ("bert", answer_model("bert", "rationale")),
        ("xlnet", answer_model("xlnet", "xlnet")),
    ]
    for name, other in others:
        path = save(tmp_path, other)
        assert f"{other.heads!r} heads" in told(path, lambda path=path: load_choice(str(path)))  # type: ignore[misc]
        built = build_choice_model(start(path, name))
        assert fingerprint(built.encoder) == fingerprint(other.encoder)
        assert built.training
        assert "the head for choices starts random" in caplog.text
        caplog.clear()


@torch.no_grad()
def test_a_folder_is_a_baseline_that_knows_nothing(tmp_path: Path) -> None:
    model("bert").to_pretrained().save_pretrained(tmp_path)
    first, second = (load_choice(str(tmp_path)).model for _ in range(2))
    assert torch.equal(first(questions()), second(questions()))
    with pytest.raises(CheckpointError, match="no model of that name"):
        load_choice(str(tmp_path / "nowhere"))


def test_the_constructor_refuses_an_unknown_pooling() -> None:
    wrong: Any = "max"
    with pytest.raises(ValueError, match="pooling must be"):
        build_choice_model(backbone("bert"), pooling=wrong)
