from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from models.language.local_model import LocalTextModel
from models.language.open_model import open_text_model
from models.language.text_models import TextFailure
from tests.data_modules.tiny_language_models import CONTEXT, save

KINDS = ("gpt2", "t5", "bart")
NEW = 6
PROMPTS = (
    "the cat sat on the mat . where is the cat ?",
    "who ran ?",
    "the red dog ran under the blue cat . who ran ?",
    "a",
    "where is not the dog",
    "the dog",
    "blue is red . red is not blue .",
    "who sat on the dog ?",
    "is the cat red ?",
)
CHAT = "<s> {% for m in messages %}who : {{ m['content'] }}{% endfor %} is"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    built = {kind: save(root / kind, kind) for kind in KINDS}
    built["gpt2_unpadded"] = save(root / "gpt2_unpadded", "gpt2", padded=False)
    built["gpt2_chat"] = save(root / "gpt2_chat", "gpt2", chat=CHAT)
    return built


def loaded(folder: Path) -> tuple[Any, Any]:
    kind = AutoModelForCausalLM if "gpt2" in folder.name else AutoModelForSeq2SeqLM
    return kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def one_by_one(folder: Path, prompt: str) -> str:
    """Greedy decoding without padding, cache or `generate`."""
    model, tokenizer = loaded(folder)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    config, written = model.generation_config, []
    forced = config.forced_bos_token_id
    target = torch.tensor([[config.decoder_start_token_id or 0]])
    while len(written) < NEW:
        with torch.no_grad():
            if "gpt2" in folder.name:
                logits = model(input_ids=ids, use_cache=False).logits
            else:
                logits = model(input_ids=ids, decoder_input_ids=target, use_cache=False).logits
        token = int(logits[0, -1].argmax()) if written or forced is None else forced
        written.append(token)
        ids, target = (torch.cat([row, torch.tensor([[token]])], 1) for row in (ids, target))
        ids = ids if "gpt2" in folder.name else ids[:, :-1]
        if token == config.eos_token_id:
            break
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


@pytest.mark.parametrize("name", [*KINDS, "gpt2_unpadded"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_answers_are_those_of_greedy_decoding_one_by_one(
    folders: dict[str, Path], name: str, batch_size: int
) -> None:
    folder = folders[name]
    model = open_text_model(f"hf:{folder}", max_new_tokens=NEW, batch_size=batch_size, device="cpu")
    texts = list(model.complete(PROMPTS))
    expected = [one_by_one(folder, prompt) or TextFailure("empty answer") for prompt in PROMPTS]
    assert texts == expected
    assert len(set(map(str, texts))) > 2  # the models do read their prompts
    assert model.name == f"hf:{folder}"


def test_a_chat_template_is_used_unless_it_is_declined(folders: dict[str, Path]) -> None:
    plain, chat = folders["gpt2"], folders["gpt2_chat"]  # equal weights
    model = open_text_model(f"hf:{chat}", max_new_tokens=NEW)
    expected = [one_by_one(plain, f"<s> who : {prompt} is") for prompt in PROMPTS[1:4]]
    assert list(model.complete(PROMPTS[1:4])) == expected
    declined = open_text_model(f"hf:{chat}", max_new_tokens=NEW, chat_template=False)
    assert list(declined.complete(PROMPTS[1:4])) == [one_by_one(plain, prompt) for prompt in PROMPTS[1:4]]
    assert (model.settings["chat_template"], declined.settings["chat_template"]) == (True, False)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_prompts_that_do_not_fit_fail_before_anything_is_generated(
    folders: dict[str, Path], name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LocalTextModel(str(folders[name]), max_new_tokens=NEW, batch_size=2)
    room = CONTEXT - NEW if name == "gpt2" else CONTEXT - 1  # </s> takes one
    prompts = ["the " * room, "the " * (room + 1), "", "a"]
    monkeypatch.setattr(model, "_generate", lambda ids: [f"{len(row)} tokens" for row in ids])
    with caplog.at_level(logging.WARNING):
        answers = model.complete(prompts)
        first = next(answers)
    assert "of 4 prompts do not fit" in caplog.text
    rest = list(answers)
    assert first == f"{room if name == 'gpt2' else CONTEXT} tokens"
    assert isinstance(rest[0], TextFailure)
    assert rest[0].reason == "longer than the model's context"
    length = room + 1 if name == "gpt2" else CONTEXT + 1
    assert str(rest[0]).endswith(f"{length} tokens and {NEW} new ones, where the model takes {CONTEXT}")
    assert rest[2] == ("1 tokens" if name == "gpt2" else "2 tokens")


def test_relative_positions_have_no_bound(folders: dict[str, Path]) -> None:
    (text,) = LocalTextModel(str(folders["t5"]), max_new_tokens=2).complete(["the cat " * 600])
    assert not isinstance(text, TextFailure) or text.reason == "empty answer"


PAIRS = tuple(
    (prompt, continuation)
    for prompt in PROMPTS[:5]
    for continuation in (" on the mat", "red", " cat ran not .")
)


def naive_log_likelihood(folder: Path, prompt: str, continuation: str) -> float:
    """One softmax a token, from a fresh forward pass each."""
    model, tokenizer = loaded(folder)
    ids = tokenizer(prompt)["input_ids"]
    config = model.generation_config
    target = [config.decoder_start_token_id, *filter(None, [config.forced_bos_token_id])]
    total = 0.0
    for token in tokenizer(continuation, add_special_tokens=False)["input_ids"]:
        with torch.no_grad():
            if "gpt2" in folder.name:
                logits = model(input_ids=torch.tensor([ids])).logits
            else:
                decoder = torch.tensor([target])
                logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=decoder).logits
        total += float(logits[0, -1].double().log_softmax(-1)[token])
        ids, target = ([*ids, token], target) if "gpt2" in folder.name else (ids, [*target, token])
    return total


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_log_likelihoods_equal_a_naive_loop(folders: dict[str, Path], name: str, batch_size: int) -> None:
    model = open_text_model(f"hf:{folders[name]}", batch_size=batch_size, device="cpu")
    result: Tensor = model.log_likelihoods(PAIRS)
    expected = torch.tensor([naive_log_likelihood(folders[name], *pair) for pair in PAIRS])
    assert result.dtype == torch.float64
    torch.testing.assert_close(result.float(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_words_that_may_follow_share_one_probability(folders: dict[str, Path], name: str) -> None:
    model = open_text_model(f"hf:{folders[name]}", device="cpu")
    _, tokenizer = loaded(folders[name])
    words = list(tokenizer.get_vocab())
    scores = model.log_likelihoods([("the cat", word) for word in words])
    assert float(scores.exp().sum()) == pytest.approx(1, abs=1e-5)


def test_pairs_that_cannot_be_scored_are_told(folders: dict[str, Path]) -> None:
    model = open_text_model(f"hf:{folders['gpt2']}")
    with pytest.raises(ValueError, match="pair 1: the continuation '' has no tokens"):
        model.log_likelihoods([("a", "cat"), ("a", "")])
    with pytest.raises(ValueError, match=rf"pair 0: longer than the model's context: {CONTEXT} tokens and 1"):
        model.log_likelihoods([("the " * CONTEXT, "cat")])
    assert model.log_likelihoods([]).shape == (0,)


def test_continuations_are_those_of_each_prompt_alone(folders: dict[str, Path]) -> None:
    prompts, prefixes = PROMPTS[1:6], [("a cat : ", "not ")] * 5
    for how in ({}, {"beams": 2}, {"seeds": [3, 1, 4, 1, 5]}):
        found = []
        for batch_size in (1, 4):
            model = LocalTextModel(str(folders["gpt2"]), max_new_tokens=NEW, batch_size=batch_size)
            found.append(list(model.continuations(prompts, prefixes, **how)))  # type: ignore[arg-type]
        assert found[0] == found[1]
        assert len(found[0]) == 5
    assert found[0] != list(model.continuations(prompts, [()] * 5, seeds=[3, 1, 4, 1, 5]))


def test_what_each_kind_can_do_is_declared(folders: dict[str, Path]) -> None:
    for name in KINDS:
        model = open_text_model(f"hf:{folders[name]}", batch_size=64)
        assert isinstance(model, LocalTextModel)
        assert model.batch_size == 64
        assert ("steer" in model.can) == (name == "gpt2")
        assert {"write", "next_token", "likelihood"} <= model.can
        assert model.identity["name"] == f"hf:{folders[name]}"
        assert not {"batch_size", "device"} & model.identity.keys()


def test_other_weights_in_the_same_folder_are_another_model(tmp_path: Path) -> None:
    ids = [LocalTextModel(str(save(tmp_path, "gpt2", seed=seed))).settings["weights"] for seed in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]


def test_another_tokenizer_or_other_settings_in_the_same_folder_are_another_model(tmp_path: Path) -> None:
    folder = save(tmp_path, "gpt2", chat="{{ messages[0].content }}")
    found = [LocalTextModel(str(folder)).settings]
    for name, old, new in (
        ("tokenizer.json", '"under"', '"below"'),
        ("generation_config.json", "{", '{"repetition_penalty": 1.5,'),
        ("chat_template.jinja", "messages", "messages | list"),
    ):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
        found.append(LocalTextModel(str(folder)).settings)
    assert [sum(a[key] != b[key] for key in a) for a, b in pairwise(found)] == [1, 1, 1]


def test_mistakes_are_told(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        open_text_model(f"hf:{tmp_path / 'nowhere'}")
    with pytest.raises(ValueError, match="device gpu0"):
        open_text_model(f"hf:{folders['gpt2']}", device="gpu0")
    with pytest.raises(ValueError, match="at least 1"):
        open_text_model(f"hf:{folders['gpt2']}", batch_size=0)
    save(tmp_path / "pickled", "gpt2")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled"):
        open_text_model(f"hf:{tmp_path / 'pickled'}")
