"""Scores of continuations against whole rows; texts, greedy whatever a folder asks for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import processors
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer, BloomConfig, BloomForCausalLM

from interventune.data_modules.encoding.prompts import PromptTokens
from interventune.models.heads.causal import CausalModel
from interventune.models.language.model_calls import end_tokens, log_likelihoods
from interventune.models.language.text_models import TextFailure, reply
from interventune.models.loading import start
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.tiny_language_models import CONTEXT, IDS, likelihoods, save
from tests.models.language.conftest import greedy, load_text_model
from tests.models.tiny import at

DECODERS = ("llama", "qwen2", "qwen3", "gpt2")
TOKENS = ([5, 6, 7, 8, 9], [10, 11], [12, 13, 14])
CONTINUATIONS = ([20, 21, 22], [23], [24, 25]), ([30], [31, 32], [33])
CONTINUATIONS += (([20, 21], [20, 22, 23, 24], [9]),)
CONFIG = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}


def decoder(name: str) -> CausalModel:
    torch.manual_seed(0)
    return start(at("random", name, config=CONFIG), CausalModel).eval().double()


def padded_rows(side: str) -> tuple[dict[str, Tensor], Tensor]:
    """Padded rows of prompts with their continuations, and where these stand."""
    rows = [sum(more, prompt) for prompt, more in zip(TOKENS, CONTINUATIONS, strict=True)]
    width = max(map(len, rows)) + 2
    ids, mask = torch.full((3, width), 3), torch.zeros(3, width, dtype=torch.long)
    spans = torch.zeros(3, 3, 2, dtype=torch.long)
    for b, row in enumerate(rows):
        column = width - len(row) if side == "left" else 0
        place = slice(column, column + len(row))
        ids[b, place], mask[b, place] = torch.tensor(row), 1
        first = column + len(TOKENS[b])
        for c, tokens in enumerate(CONTINUATIONS[b]):
            spans[b, c] = torch.tensor((first, first + len(tokens) - 1))
            first += len(tokens)
    return {"input_ids": ids, "attention_mask": mask}, spans


def naive(model: CausalModel) -> Tensor:
    """The same by a full row for each continuation, without padding."""
    totals = []
    for prompt, continuations in zip(TOKENS, CONTINUATIONS, strict=True):
        for tokens in continuations:
            log_prob_TV = model.encoder(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
            places = torch.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
            totals.append(log_prob_TV[places, torch.tensor(tokens)].sum())
    return torch.stack(totals).view(3, 3)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_shared_prefix_gives_values_and_gradients_of_whole_rows(name: str, side: str) -> None:
    model, weight = decoder(name), torch.randn(3, 3, dtype=torch.float64)
    results = []
    for total_BC in (naive(model), log_likelihoods(model.encoder, *padded_rows(side))):
        model.zero_grad()
        (total_BC * weight).sum().backward()
        gradients = [(key, p.grad) for key, p in model.named_parameters() if p.grad is not None]
        results.append((total_BC.detach(), dict(gradients)))
    assert_close(results[1], results[0], rtol=0, atol=1e-5)


def test_hidden_states_do_not_depend_on_padding() -> None:
    model = decoder("gpt2")
    right, left = padded_rows("right")[0], padded_rows("left")[0]
    one, other = model.hidden_states(right), model.hidden_states(left)
    assert len(one) == model.config.num_hidden_layers + 1
    for a, b in zip(one, other, strict=True):
        real = (a[right["attention_mask"] != 0], b[left["attention_mask"] != 0])
        assert_close(*real, rtol=0, atol=1e-9)


def test_a_model_that_counts_distances_itself_is_not_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=50, hidden_size=32, n_layer=2, n_head=2, initializer_range=0.5)
    BloomForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="'bloom' model does not read two candidates"):
        start(at(tmp_path, "causal"), CausalModel)


NEW = 6
PROMPTS = ("the cat sat on the mat . where is the cat ?", "who ran ?", "a")
SETTINGS: dict[str, dict[str, Any]] = {
    "sampling": {"do_sample": True, "temperature": 9.0, "top_k": 3},
    "penalties": {"repetition_penalty": 9.0, "no_repeat_ngram_size": 1},
    "a penalty of the source": {"encoder_repetition_penalty": 5.0},
    "suppressed tokens": {"suppress_tokens": [4, 5, 6, 7], "begin_suppress_tokens": [8, 9, 10]},
    "lengths": {"min_new_tokens": NEW, "max_new_tokens": 1, "max_length": 3},
    "bad words": {"bad_words_ids": [[5], [6]], "sequence_bias": [[[7], -99.0]]},
    "beams": {"num_beams": 3, "length_penalty": -5.0, "early_stopping": True},
    "forced tokens": {"forced_eos_token_id": 9, "exponential_decay_length_penalty": [1, 9.0]},
}


def with_settings(folder: Path, file: str = "generation_config.json", **settings: Any) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_folder_change_nothing(name: str, kind: str, tmp_path: Path) -> None:
    folder = save(tmp_path / kind, kind)
    expected = [greedy(folder, prompt, NEW) or TextFailure("empty answer") for prompt in PROMPTS]
    with_settings(folder, **SETTINGS[name])
    assert list(load_text_model(folder, max_new_tokens=NEW).complete(PROMPTS)) == expected


@pytest.mark.parametrize("place", ["generation_config", "config", "tokenizer_config"])
def test_every_end_token_ends_an_answer(place: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "gpt2", "gpt2")
    whole = greedy(folder, PROMPTS[0], NEW).split()
    end = whole[2]
    if place.startswith("tokenizer"):
        with_settings(folder, f"{place}.json", eos_token=end)
    else:
        with_settings(folder, f"{place}.json", eos_token_id=[1, IDS[end]])
    (answer,) = load_text_model(folder, max_new_tokens=NEW).complete(PROMPTS[:1])
    assert str(answer).split() == whole[: whole.index(end)]


def test_end_tokens_of_a_folder_stay_with_a_checkpoint_trained_from_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "gpt2", "gpt2")
    with_settings(folder, eos_token_id=[1, 9])
    model = start(at(folder, "gpt2"), CausalModel)
    assert json.loads(model.config.to_json_string())["eos_token_id"] == [1, 9]
    assert end_tokens(model.encoder) == [1, 9]


@pytest.mark.parametrize("begins", [False, True])
def test_an_end_token_of_the_tokenizer_changes_nothing(begins: bool, tmp_path: Path) -> None:
    """An end token between a prompt and its answer would begin another text."""
    folder = save(tmp_path / "gpt2", "gpt2", bos=begins)
    pairs = [(prompt, f" {answer}") for prompt in PROMPTS for answer in ("on the mat", "red")]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    special = [(token, IDS[token]) for token in ("<s>", "</s>")]
    answers, numbers = [], []
    for _ in range(2):
        model = load_text_model(folder, max_new_tokens=NEW)
        answers.append(list(model.complete(PROMPTS)))
        labels = torch.tensor(list(model.next_token_logprobs(PROMPTS, ["red", "blue"])))
        numbers.append([*likelihoods(model, pairs)[0], *labels.flatten().tolist()])
        around = processors.TemplateProcessing("<s> " * begins + "$A </s>", special_tokens=special)
        tokenizer.backend_tokenizer.post_processor = around
        tokenizer.save_pretrained(folder)
    assert tokenizer("the cat")["input_ids"][-1] == IDS["</s>"]
    assert answers[0] == answers[1]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)


UNFINISHED, EMPTY = TextFailure("unfinished thinking"), TextFailure("empty answer")
REPLIES = {
    "<think>Rome? No.</think>\n\nParis": "Paris",
    "<think>\n\n</think>\n\nParis": "Paris",
    "Rome? No.</think>\n\nParis": "Paris",  # the template opened it
    "<thinking>a</thinking><thinking>b</thinking> Paris": "Paris",
    "<|begin_of_thought|>Rome<|end_of_thought|>Paris": "Paris",
    "I think <b>Paris</b>": "I think <b>Paris</b>",
}
REPLIES |= {"[THINK]Rome?[/THINK]Paris": "Paris", "◁think▷Rome?◁/think▷Paris": "Paris"}
REPLIES |= {"<think>Rome? No.": UNFINISHED, "<think>a</think><think>b": UNFINISHED}
REPLIES |= {"<think>a</think>  ": EMPTY, "": EMPTY}


@pytest.mark.parametrize("text", REPLIES)
def test_thinking_is_no_part_of_an_answer(text: str) -> None:
    assert reply(text) == REPLIES[text]


def test_thinking_tokens_count_if_special_or_opened_by_the_template(tmp_path: Path) -> None:
    chat = "{{ messages[0].content }}{% if add_generation_prompt %} <think>\n{% endif %}"
    folder = save(tmp_path / "gpt2", "gpt2", chat=chat)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=True)
    tokens = PromptTokens(tokenizer)
    closing = tokenizer.convert_tokens_to_ids("</think>")
    texts = tokens.decoded([[4, 5, closing, 6, 1], [4, 5]])
    assert reply(texts[0]) == tokenizer.decode([6])
    assert isinstance(reply(texts[1]), TextFailure)
    plain = PromptTokens(tokenizer, "never")
    assert reply(plain.decoded([[4, 5]])[0]) == tokenizer.decode([4, 5])


def test_answers_beyond_the_positions_of_a_model_are_failures(folders: dict[str, Path]) -> None:
    """In the validation of a training, whose rows end in the answer."""
    model = AutoModelForCausalLM.from_pretrained(folders["gpt2"]).eval()
    tokens = PromptTokens(AutoTokenizer.from_pretrained(folders["gpt2"]))
    ids = torch.tensor([[4] * CONTEXT])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    texts = CausalModel(model, "gpt2").write(inputs, torch.tensor([CONTEXT - 2]), tokens)
    assert texts == [("", "longer than the model's context")]


def test_logits_that_overflow_end_the_run_and_name_the_model(tmp_path: Path) -> None:
    """The weights are finite; their product is not."""
    folder = save(tmp_path / "gpt2", "gpt2")
    model = load_text_model(folder, max_new_tokens=NEW)
    with torch.no_grad():
        model.model.lm_head.weight.fill_(3e38)
    for answers in (model.complete(PROMPTS), model.next_token_logprobs(PROMPTS, ["red", "blue"])):
        with pytest.raises(ValueError, match="gpt2: gives logits that are not finite numbers"):
            list(answers)
