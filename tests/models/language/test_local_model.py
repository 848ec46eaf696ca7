"""Local language models against one forward pass a token, without batches."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from models.language.local_model import load_text_model
from models.language.self_debiasing import continued
from models.language.text_models import TextFailure
from tests.data_modules.fixtures.tiny_language_models import CONTEXT, save
from tests.models.language.one_by_one import greedy, loaded, log_likelihood

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
PAIRS = tuple(
    (prompt, continuation)
    for prompt in PROMPTS[:5]
    for continuation in (" on the mat", "red", " cat ran not .")
)


@pytest.mark.parametrize("name", [*KINDS, "gpt2_unpadded"])
def test_answers_and_likelihoods_are_those_of_naive_loops(folders: dict[str, Path], name: str) -> None:
    folder = folders[name]
    answers = [greedy(folder, prompt, NEW) or TextFailure("empty answer") for prompt in PROMPTS]
    assert len(set(map(str, answers))) > 2  # the models do read their prompts
    expected = torch.tensor([log_likelihood(folder, *pair) for pair in PAIRS], dtype=torch.float64)
    for batch_size in (1, 4):
        model = load_text_model(str(folder), max_new_tokens=NEW, batch_size=batch_size, device="cpu")
        assert list(model.complete(PROMPTS)) == answers
        found, counts = model.log_likelihoods(PAIRS)
        assert counts.tolist() == [len(text.split()) + ("gpt2" not in name) for _, text in PAIRS]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert ("steer" in model.can) == ("gpt2" in name)
    assert {"write", "next_token", "likelihood"} <= model.can
    assert model.identity["name"] == model.name == f"hf:{folder}"
    assert not {"batch_size", "device"} & model.identity.keys()


def test_a_chat_template_is_used_unless_it_is_declined(folders: dict[str, Path]) -> None:
    plain, chat, prompts = folders["gpt2"], folders["gpt2_chat"], PROMPTS[1:4]  # equal weights
    model = load_text_model(str(chat), max_new_tokens=NEW)
    assert list(model.complete(prompts)) == [greedy(plain, f"<s> who : {text} is", NEW) for text in prompts]
    declined = load_text_model(str(chat), max_new_tokens=NEW, chat_template=False)
    assert list(declined.complete(prompts)) == [greedy(plain, text, NEW) for text in prompts]
    assert (model.settings["chat_template"], declined.settings["chat_template"]) == (True, False)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_prompts_that_do_not_fit_fail_before_anything_is_generated(
    folders: dict[str, Path], name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_text_model(str(folders[name]), max_new_tokens=NEW, batch_size=2)
    room, special = (CONTEXT - NEW, 0) if name == "gpt2" else (CONTEXT - 1, 1)  # </s> takes one
    lengths: list[int] = []
    generate = model.model.generate

    def counting(**inputs: Any) -> Any:
        lengths.extend(inputs["attention_mask"].sum(1).tolist())
        return generate(**inputs)

    monkeypatch.setattr(model.model, "generate", counting)
    with caplog.at_level(logging.WARNING):
        answers = model.complete(["the " * room, "the " * (room + 1), "", "a"])
        next(answers)
        assert "of 4 prompts do not fit" in caplog.text
    rest = list(answers)
    assert isinstance(rest[0], TextFailure)
    assert str(room + 1 + special) in str(rest[0])
    assert str(CONTEXT) in str(rest[0])
    assert lengths == [room + special, *[special] * special, 1 + special]
    unbound = load_text_model(str(folders["t5"]), max_new_tokens=2)  # positions are relative
    (text,) = unbound.complete(["the cat " * 600])
    assert not isinstance(text, TextFailure) or text.reason == "empty answer"


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_words_that_may_follow_share_one_probability(folders: dict[str, Path], name: str) -> None:
    model = load_text_model(str(folders[name]), device="cpu")
    pairs = [("the cat", word) for word in loaded(folders[name])[1].get_vocab()]
    scores, counts = model.log_likelihoods(pairs)
    if name == "gpt2":
        assert float(scores.exp().sum()) == pytest.approx(1, abs=1e-5)
    else:  # each is followed by an end
        assert set(counts.tolist()) == {2}
        assert 0 < float(scores.exp().sum()) < 0.99


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_repeated_pairs_are_read_once(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_text_model(str(folders[name]), device="cpu")
    read, forward = list[int](), model.model.forward

    def counting(*arguments: Any, **inputs: Any) -> Any:
        read.append((arguments[0] if arguments else inputs["input_ids"]).numel())
        return forward(*arguments, **inputs)

    monkeypatch.setattr(model.model, "forward", counting)
    model.log_likelihoods(PAIRS[:1])  # asks whether the model reads side by side
    read.clear()
    expected, _ = model.log_likelihoods(PAIRS[:6])
    once = sum(read)
    read.clear()
    found, count = model.log_likelihoods(PAIRS[:6] * 5)
    assert sum(read) == once
    torch.testing.assert_close(found, expected.repeat(5), rtol=0, atol=1e-5)
    assert len(count) == 30


def test_continuations_are_those_of_each_prompt_alone(folders: dict[str, Path]) -> None:
    prompts, prefixes = PROMPTS[1:6], ("a cat : ", "not ")
    for how in ({}, {"beams": 2}):
        found = []
        for batch_size in (1, 4):
            model = load_text_model(str(folders["gpt2"]), max_new_tokens=NEW, batch_size=batch_size)
            found.append(list(model.continuations(prompts, prefixes, **how)))
        assert found[0] == found[1]
        assert len(found[0]) == 5
    assert found[0] != list(model.continuations(prompts, (), beams=2))


def test_continued_texts_begin_as_the_tokenizer_begins_texts(folders: dict[str, Path]) -> None:
    prompts, prefix = ("the cat sat", "who"), "a cat : "
    plain, begins = (
        load_text_model(str(folders[name]), max_new_tokens=NEW, device="cpu")
        for name in ("gpt2", "gpt2_begins")
    )
    found = list(begins.continuations(prompts, [prefix]))
    assert found != list(plain.continuations(prompts, [prefix]))
    ids = [[3, *plain.plain_ids([text])[0]] for text in prompts]
    prefixed = [[3, *plain.plain_ids([prefix + text])[0]] for text in prompts]
    rows = continued(plain.model, ids, [prefixed], new_tokens=NEW, pad=0)
    assert found == plain.tokenizer.batch_decode(rows)


def test_logits_are_float32_whatever_the_weights(folders: dict[str, Path]) -> None:
    model = load_text_model(str(folders["gpt2"]), device="cpu", dtype="bfloat16")
    assert model.settings["dtype"] == "bfloat16"
    with torch.no_grad():
        output = model.model(torch.tensor([[4, 6, 8]]), output_hidden_states=True)
    expected = output.hidden_states[-1].double() @ model.model.lm_head.weight.double().T
    torch.testing.assert_close(output.logits.double(), expected, rtol=1e-5, atol=1e-5)
    exact = load_text_model(str(folders["gpt2"]), device="cpu").log_likelihoods(PAIRS)
    torch.testing.assert_close(model.log_likelihoods(PAIRS), exact, rtol=0.05, atol=0.2)


def test_where_the_continuation_begins(tmp_path: Path) -> None:
    """White space of the prompt goes over; the tokens are those that lm-evaluation-harness scores: of the
    whole, behind as many as the prompt has; but its own where a token spans the boundary."""
    folder = save(tmp_path / "gpt2", "gpt2")
    pieces = ["<pad>", "</s>", "<unk>", "<s>", *"acts: .", "at", "cat", " cat", ": "]
    merges = [("a", "t"), ("c", "at"), (" ", "cat"), (":", " ")]
    words = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder)
    model = load_text_model(str(folder), device="cpu")
    plain, (whole, spaced, spanning) = (
        lambda text: model.plain_ids([text])[0],
        (("s", " cat"), ("s ", "cat"), ("s:", " s")),
    )
    assert len(plain("s cat")) == 2
    assert len(plain("s: s")) == 3 > len(plain("s:"))  # ': ' is one token

    def naive(first: list[int], second: list[int]) -> float:
        with torch.no_grad():
            log_TV = model.model(torch.tensor([first + second])).logits[0].double().log_softmax(-1)
        return sum(float(log_TV[len(first) - 1 + i, token]) for i, token in enumerate(second))

    totals, counts = model.log_likelihoods([whole, spaced, spanning])
    harness = naive(plain("s"), plain("s cat")[1:])
    assert totals.tolist() == pytest.approx([harness, harness, naive(plain("s:"), plain(" s"))], abs=1e-5)
    assert counts.tolist() == [1, 1, 2]


def test_other_weights_tokenizers_and_settings_in_the_same_folder_are_another_model(tmp_path: Path) -> None:
    ids = [load_text_model(str(save(tmp_path, "gpt2", seed=seed))).settings["weights"] for seed in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]
    folder = save(tmp_path, "gpt2", chat="{{ messages[0].content }}")
    found = [load_text_model(str(folder)).settings]
    for name, old, new in (
        ("tokenizer.json", '"under"', '"below"'),
        ("generation_config.json", "{", '{"repetition_penalty": 1.5,'),
        ("chat_template.jinja", "messages", "messages | list"),
    ):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
        found.append(load_text_model(str(folder)).settings)
    assert [sum(a[key] != b[key] for key in a) for a, b in pairwise(found)] == [1, 1, 1]


def test_mistakes_are_told(folders: dict[str, Path], tmp_path: Path) -> None:
    save(tmp_path / "pickled", "gpt2")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    for name, options, word in (
        (tmp_path / "nowhere", {}, "nowhere"),
        (folders["gpt2"], {"device": "gpu0"}, "gpu0"),
        (tmp_path / "pickled", {}, "pickled"),
    ):
        with pytest.raises(ValueError, match=word):
            load_text_model(str(name), **options)
    model = load_text_model(str(folders["gpt2"]))
    assert model.log_likelihoods([])[0].shape == (0,)
    for pairs, word in (([("a", "cat"), ("a", "")], "pair 1"), ([("the " * CONTEXT, "cat")], "pair 0")):
        with pytest.raises(ValueError, match=word):
            model.log_likelihoods(pairs)
