"""Local language models against one forward pass a token, without batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from interventune.models.language.self_debiasing import continued
from interventune.models.language.text_models import TextFailure
from tests.data_modules.fixtures.tiny_language_models import CONTEXT, save
from tests.models.language.conftest import load_text_model
from tests.models.language.one_by_one import greedy, log_likelihood

NEW = 6
PROMPTS = ("the cat sat on the mat . where is the cat ?", "who ran ?")
PROMPTS += ("the red dog ran under the blue cat . who ran ?", "a", "where is not the dog")
CONTINUATIONS = (" on the mat", "red", " cat ran not .")
PAIRS = tuple((prompt, continuation) for prompt in PROMPTS for continuation in CONTINUATIONS)


@pytest.mark.parametrize("name", ["gpt2", "t5", "bart", "gpt2_unpadded"])
def test_answers_and_likelihoods_are_those_of_naive_loops(
    folders: dict[str, Path], name: str
) -> None:
    folder = folders[name]
    answers = [greedy(folder, prompt, NEW) or TextFailure("empty answer") for prompt in PROMPTS]
    assert len(set(map(str, answers))) > 2  # the models do read their prompts
    expected = torch.tensor([log_likelihood(folder, *pair) for pair in PAIRS], dtype=torch.float64)
    for batch_size in (1, 4):
        model = load_text_model(folder, max_new_tokens=NEW, batch_size=batch_size)
        assert list(model.complete(PROMPTS)) == answers
        actual, counts = model.log_likelihoods(PAIRS)
        assert counts.tolist() == [len(text.split()) + ("gpt2" not in name) for _, text in PAIRS]
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_chat_template_is_used_unless_it_is_declined(folders: dict[str, Path]) -> None:
    plain, chat, prompts = folders["gpt2"], folders["gpt2_chat"], PROMPTS[1:4]  # equal weights
    model = load_text_model(str(chat), max_new_tokens=NEW)
    assert list(model.complete(prompts)) == [
        greedy(plain, f"<s> who : {text} is", NEW) for text in prompts
    ]
    declined = load_text_model(str(chat), max_new_tokens=NEW, chat="never")
    assert list(declined.complete(prompts)) == [greedy(plain, text, NEW) for text in prompts]
    assert model.identity != declined.identity


@pytest.mark.parametrize(
    ("name", "room"), [("gpt2", CONTEXT - NEW), ("bart", CONTEXT - 1), ("t5", 999)]
)
def test_prompts_that_do_not_fit_fail(folders: dict[str, Path], name: str, room: int) -> None:
    """BART's </s> takes a place; T5's positions are relative: all fit."""
    model = load_text_model(folders[name], max_new_tokens=NEW, batch_size=2)
    answers = model.complete(["the " * room, "the " * (room + 1), "a"])
    too_long = [str(answer).startswith("longer than the model's context") for answer in answers]
    assert too_long == [False, name != "t5", False]


def test_a_prompt_is_read_once_for_all_its_continuations(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"])
    read: list[int] = []
    model.model.transformer.wte.register_forward_hook(
        lambda _, ids, __: read.append(ids[0].numel())
    )
    expected, _ = model.log_likelihoods(PAIRS[:3])
    read.clear()
    actual, _ = model.log_likelihoods(PAIRS[:3] * 5)
    assert read == [
        sum(len(text.split()) for text in (PROMPTS[0], *(text for _, text in PAIRS[:3])))
    ]
    torch.testing.assert_close(actual, expected.repeat(5), rtol=0, atol=1e-5)


def test_continued_texts_begin_as_the_tokenizer_begins_texts(folders: dict[str, Path]) -> None:
    prompts, prefix = ("the cat sat", "who"), "a cat : "
    model = load_text_model(folders["gpt2_begins"], max_new_tokens=NEW, batch_size=1)
    ids, prefixed = (
        [[3, *row] for row in model.tokens.ids([before + text for text in prompts])]
        for before in ("", prefix)
    )
    rows = continued(model.model, [ids, prefixed], new_tokens=NEW)
    texts = list(model.continuations(prompts, [prefix], beams=1, decay=50))
    assert texts == model.tokens.tokenizer.batch_decode(rows)


def test_logits_are_float32_whatever_the_weights(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"], dtype="bfloat16")
    with torch.no_grad():
        output = model.model(torch.tensor([[4, 6, 8]]), output_hidden_states=True)
    expected = output.hidden_states[-1].double() @ model.model.lm_head.weight.double().T
    torch.testing.assert_close(output.logits.double(), expected, rtol=1e-5, atol=1e-5)


def test_where_the_continuation_begins(tmp_path: Path) -> None:
    """White space of the prompt goes over; the tokens are those that lm-evaluation-harness scores:
    of the whole, behind as many as the prompt has; but its own where a token spans the boundary.
    """
    folder = save(tmp_path / "gpt2", "gpt2")
    pieces = ["<pad>", "</s>", "<unk>", "<s>", *"acts: .", "at", "cat", " cat", ": "]
    merges = [("a", "t"), ("c", "at"), (" ", "cat"), (":", " ")]
    words = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder)
    model = load_text_model(folder)

    def plain(text: str) -> list[int]:
        return model.tokens.ids([text])[0]

    def naive(first: list[int], second: list[int]) -> float:
        with torch.no_grad():
            log_TV = model.model(torch.tensor([first + second])).logits[0].double().log_softmax(-1)
        return sum(float(log_TV[len(first) - 1 + i, token]) for i, token in enumerate(second))

    totals, counts = model.log_likelihoods([("s", " cat"), ("s ", "cat"), ("s:", " s")])
    harness = naive(plain("s"), plain("s cat")[1:])
    assert totals.tolist() == pytest.approx(
        [harness, harness, naive(plain("s:"), plain(" s"))], abs=1e-5
    )
    assert counts.tolist() == [1, 1, 2]


def test_mistakes_are_told(folders: dict[str, Path], tmp_path: Path) -> None:
    save(tmp_path / "pickled", "gpt2")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match="pickled: does not fit its configuration: weights missing"
    ):
        load_text_model(str(tmp_path / "pickled"))
    model = load_text_model(folders["gpt2"])
    assert model.log_likelihoods([])[0].shape == (0,)
    for pairs, word in (
        ([("a", "cat"), ("a", "")], "pair 1"),
        ([("the " * CONTEXT, "cat")], "pair 0"),
    ):
        with pytest.raises(ValueError, match=word):
            model.log_likelihoods(pairs)
