"""Local language models against one forward pass a token, without batches."""

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from interventune.models.language import local_model
from interventune.models.language.self_debiasing import continued
from interventune.models.language.text_models import TextFailure
from tests.data_modules.fixtures.tiny_language_models import CONTEXT, likelihoods, save
from tests.models.language import conftest
from tests.models.language.conftest import greedy, load_text_model, next_log_probs

NEW = 6
PROMPTS = ("the cat sat on the mat . where is the cat ?", "who ran ?")
PROMPTS += ("the red dog ran under the blue cat . who ran ?", "a", "where is not the dog")
CONTINUATIONS = (" on the mat", "red", " cat ran not .")
PAIRS = tuple((prompt, continuation) for prompt in PROMPTS for continuation in CONTINUATIONS)
LABELS = ("red", "blue")
SIMILAR = ("the cat sat on the mat . who ?", "the cat sat on the dog .", "the cat sat")
SIMILAR += ("the cat sat on the mat . where is the cat ?", "the cat ran")
ROOM = {"gpt2": CONTEXT - NEW, "bart": CONTEXT - 1, "t5": 999}


@pytest.mark.parametrize("name", ["gpt2", "t5", "bart"])
def test_answers_and_likelihoods_are_naive_ones(folders: dict[str, Path], name: str) -> None:
    folder = folders[name]
    answers = [greedy(folder, prompt, NEW) or TextFailure("empty answer") for prompt in PROMPTS]
    assert len(set(map(str, answers))) > 2  # the models do read their prompts
    totals = [conftest.log_likelihood(folder, *pair) for pair in PAIRS]
    for batch_size in (1, 4):
        model = load_text_model(folder, max_new_tokens=NEW, batch_size=batch_size)
        assert list(model.complete(PROMPTS)) == answers
        actual, counts = likelihoods(model, PAIRS)
        assert counts == [len(text.split()) + (name != "gpt2") for _, text in PAIRS]
        assert actual == pytest.approx(totals, rel=1e-4, abs=1e-4)


def test_texts_of_one_batch_do_not_change_each_other(tmp_path: Path) -> None:
    """mBART's decoder starts with the last label that is no padding, and its padding is not 0."""
    model = load_text_model(save(tmp_path / "mbart", "mbart"))
    together, _ = likelihoods(model, PAIRS)
    alone = [likelihoods(model, [pair])[0][0] for pair in PAIRS]
    assert together == pytest.approx(alone, abs=1e-4)


def test_a_chat_template_is_used_unless_it_is_declined(folders: dict[str, Path]) -> None:
    plain, chat, prompts = folders["gpt2"], folders["gpt2_chat"], PROMPTS[1:4]  # equal weights
    model = load_text_model(chat, max_new_tokens=NEW)
    in_chat = [greedy(plain, f"<s> who : {text} is", NEW) for text in prompts]
    assert list(model.complete(prompts)) == in_chat
    declined = load_text_model(chat, max_new_tokens=NEW, chat="never")
    assert list(declined.complete(prompts)) == [greedy(plain, text, NEW) for text in prompts]
    assert model.identity != declined.identity


@pytest.mark.parametrize(("name", "room"), ROOM.items())
def test_prompts_that_do_not_fit_fail_alone(folders: dict[str, Path], name: str, room: int) -> None:
    """BART's </s> takes a place; T5's positions are relative: all fit."""
    model = load_text_model(folders[name], max_new_tokens=NEW, batch_size=2)
    answers = model.complete(["the " * room, "the " * (room + 1), "a"])
    too_long = [str(answer).startswith("longer than the model's context") for answer in answers]
    assert too_long == [False, name != "t5", False]


def test_a_prompt_is_read_once_for_all_its_continuations(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"])
    read: list[int] = []
    embeddings = model.model.transformer.wte
    embeddings.register_forward_hook(lambda _, ids, __: read.append(ids[0].numel()))
    expected, _ = likelihoods(model, PAIRS[:3])
    read.clear()
    actual, _ = likelihoods(model, PAIRS[:3] * 5)
    assert read == [len(f"{PROMPTS[0]} {' '.join(CONTINUATIONS)}".split())]
    assert actual == pytest.approx(expected * 5, abs=1e-5)


def test_continued_texts_begin_as_the_tokenizer_begins_texts(folders: dict[str, Path]) -> None:
    prompts, prefix = ("the cat sat", "who"), "a cat : "
    model = load_text_model(folders["gpt2_begins"], max_new_tokens=NEW, batch_size=1)
    texts = [[before + text for text in prompts] for before in ("", prefix)]
    copies = [[[3, *row] for row in model.tokens.ids(part)] for part in texts]
    rows = continued(model.model, copies, new_tokens=NEW)
    actual = list(model.continuations(prompts, [prefix], beams=1, decay=50))
    assert actual == model.tokens.tokenizer.batch_decode(rows)


def test_logits_are_float32_whatever_the_weights(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"], dtype="bfloat16")
    with torch.no_grad():
        output = model.model(torch.tensor([[4, 6, 8]]), output_hidden_states=True)
    expected = output.hidden_states[-1].double() @ model.model.lm_head.weight.double().T
    torch.testing.assert_close(output.logits.double(), expected, rtol=1e-5, atol=1e-5)


def test_where_the_continuation_begins(tmp_path: Path) -> None:
    """Tokens are lm-evaluation-harness's (white space goes over), unless one spans both texts."""
    folder = save(tmp_path / "gpt2", "gpt2")
    pieces = ["<pad>", "</s>", "<unk>", "<s>", *"acts: .", "at", "cat", " cat", ": "]
    merges = [("a", "t"), ("c", "at"), (" ", "cat"), (":", " ")]
    words = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder)
    model = load_text_model(folder)

    def naive(first: str, second: list[int]) -> float:
        (ids,) = model.tokens.ids([first])
        with torch.no_grad():
            log_TV = model.model(torch.tensor([ids + second])).logits[0].double().log_softmax(-1)
        return sum(float(log_TV[len(ids) - 1 + i, token]) for i, token in enumerate(second))

    totals, counts = likelihoods(model, [("s", " cat"), ("s ", "cat"), ("s:", " s")])
    whole, alone = model.tokens.ids(["s cat", " s"])
    harness = naive("s", whole[1:])
    assert totals == pytest.approx([harness, harness, naive("s:", alone)], abs=1e-5)
    assert counts == [1, 1, 2]


def test_texts_that_cannot_be_scored_fail_alone(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"])
    assert not [*model.log_likelihoods([])]
    requests = [("a", ["cat", ""]), ("a", ["cat"]), ("the " * CONTEXT, ["cat"])]
    empty, scored, long = model.log_likelihoods(requests)
    assert isinstance(empty, TextFailure)
    assert isinstance(long, TextFailure)
    assert scored == [(likelihoods(model, [("a", "cat")])[0][0], 1)]


@pytest.mark.parametrize("kind", ["gpt2", "mamba", "t5", "bart"])
@pytest.mark.parametrize("sharing", [2, 99])
def test_probabilities_of_labels_are_those_after_each_prompt_alone(
    folders: dict[str, Path], kind: str, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the common beginning is read once; Mamba keeps no keys and values."""
    monkeypatch.setattr(local_model, "WORTH_SHARING", sharing)
    folder, model = folders[kind], load_text_model(folders[kind], batch_size=2)
    ids = model.first_tokens(LABELS, "")
    rows = list(model.next_token_logprobs(SIMILAR, LABELS))
    rows += model.next_token_logprobs(SIMILAR[:4], LABELS)  # one of them is what all begin with
    for prompt, row in zip(SIMILAR + SIMILAR[:4], rows, strict=True):
        alone = next_log_probs(folder, prompt, conftest.lead(folder))[ids]
        assert row == pytest.approx(alone.tolist(), abs=1e-4)
    assert len({round(row[0], 3) for row in rows}) > 2  # the prompt matters  # type: ignore[index]


def test_labels_among_the_top_tokens_or_that_begin_alike(folders: dict[str, Path]) -> None:
    model = load_text_model(folders["gpt2"])
    log_prob, token = next_log_probs(folders["gpt2"], SIMILAR[0]).topk(6)
    labels = model.tokens.tokenizer.convert_ids_to_tokens(token[4:].tolist())
    (row,) = model.next_token_logprobs(SIMILAR[:1], labels, top=5)
    assert row == pytest.approx((float(log_prob[4]), -math.inf), abs=1e-4)
    prompts = ["the " * CONTEXT, "the " * (CONTEXT + 1), ""]
    rows = list(model.next_token_logprobs(prompts, LABELS))
    assert [isinstance(row, TextFailure) for row in rows] == [False, True, True]
    with pytest.raises(ValueError, match="'red' and 'red dog'"):
        list(model.next_token_logprobs(["the cat"], ["red", "red dog"]))
