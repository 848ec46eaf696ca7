"""Who chooses among choices: checkpoints in batches of any size; language models against sums by hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.choices.benchmarks import write_choices
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
from evaluation.answering.interface import Asking, Compute
from evaluation.answering.language_model import LanguageModel
from evaluation.answering.open import open_chooser
from evaluation.answering.prompts import CHOICE_WORDINGS, choice_prompt
from evaluation.protocols.confusion.command import check_model
from models.backbones import Backbone
from models.checkpoint import KEY, describe, start
from models.heads.causal import CausalModel
from models.heads.choice import ChoiceModel, Pooling
from models.heads.span import SpanModel
from storage.errors import DataError
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.checkpoints import evaluate, examples_of, save_ckpt, save_folder, save_model, tiny_model

QUESTIONS = read_choices("stories:choices_dev")[:9]
MIXED = [
    *QUESTIONS,
    ChoiceQuestion("two", "Anna is in the kitchen.", ("kitchen", "garden"), 0),
    ChoiceQuestion("empty", "", ("red", "blue", "green", "white", "black"), 3),
    QUESTIONS[0],
]
SIMPLE = [
    ChoiceQuestion("0", "where is the cat ?", ("on the mat", "under the red mat ."), 0),
    ChoiceQuestion("1", "", ("the dog ran", "the cat"), 1),
]
CPU = Compute(device="cpu")


def save_choice_ckpt(
    path: Path, architecture: str = "bert", pooling: Pooling = "masked", **encoding: object
) -> Path:
    """A tiny model of multiple choice, as training saves it."""
    encoder = tiny_model(architecture).encoder
    model = ChoiceModel(encoder, architecture, pooling=pooling, generator=torch.Generator().manual_seed(0))
    return save_model(path, model, ChoiceEncoding(**encoding))  # type: ignore[arg-type]


def test_logits_do_not_depend_on_batches(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "xlnet"))  # which pads on the left
    one, many = (ChoiceCheckpoint(path, replace(CPU, batch_size=size)) for size in (1, 100))
    alone = [one.choice_logits([example])[0] for example in MIXED]
    for checkpoint in (one, many):
        found = checkpoint.choice_logits(MIXED)
        assert [len(logits) for logits in found] == [len(example.choices) for example in MIXED]
        for logits, wanted in zip(found, alone, strict=True):
            assert logits.dtype == np.float32
            np.testing.assert_allclose(logits, wanted, atol=1e-5)
    assert one.identity == many.identity
    assert one.choice_logits([]) == []


def test_parity_pads_as_in_training(tmp_path: Path) -> None:
    path = str(save_choice_ckpt(tmp_path / "a.ckpt", "roberta", "parity", padding="parity", max_length=64))
    checkpoint = ChoiceCheckpoint(path, CPU)
    assert (checkpoint.identity["pooling"], checkpoint.encoding.padding) == ("parity", "parity")
    logits = checkpoint.choice_logits(MIXED)[0]
    np.testing.assert_allclose(logits, checkpoint.choice_logits(QUESTIONS[:1])[0], atol=1e-5)


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(tmp_path: Path) -> None:
    checkpoint = ChoiceCheckpoint(str(save_choice_ckpt(tmp_path / "a.ckpt")), replace(CPU, batch_size=2))
    texts = ["Anna is in the kitchen.", "red", "Anna is in the kitchen.", "Who has a ball?"]
    found = checkpoint.embeddings(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    hidden = checkpoint.model.encode(dict(checkpoint.tokenizer("red", return_tensors="pt")))
    wanted = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
    np.testing.assert_allclose(found[1], wanted.detach(), atol=1e-5)


def test_a_folder_has_a_random_head_and_rows_that_fit_its_positions(tmp_path: Path) -> None:
    short = {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = short | {"intermediate_size": 16, "max_position_embeddings": 16}
    backbone = Backbone(architecture="bert", checkpoint="random", config=config)
    start(backbone, SpanModel).to_pretrained().save_pretrained(tmp_path)
    build_tokenizer("bert", vocabulary()).save_pretrained(tmp_path)
    checkpoint = ChoiceCheckpoint(str(tmp_path), CPU)
    assert checkpoint.encoding.max_length == 16
    assert len(checkpoint.choice_logits(QUESTIONS)) == len(QUESTIONS)
    assert ChoiceCheckpoint(str(save_folder(tmp_path / "long")), CPU).encoding == ChoiceEncoding()


def test_finished_work_of_another_tokenizer_is_not_taken_over(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder")
    first, again = (ChoiceCheckpoint(str(folder), CPU).identity for _ in range(2))
    assert first == again
    build_tokenizer("bert", sorted(vocabulary(), reverse=True)).save_pretrained(folder)
    other = ChoiceCheckpoint(str(folder), CPU).identity
    assert other["weights"] == first["weights"]
    assert other != first


def test_models_that_cannot_choose(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"qa\.ckpt"):
        ChoiceCheckpoint(str(save_ckpt(tmp_path / "qa.ckpt")), CPU)
    choice = str(save_choice_ckpt(tmp_path / "choice.ckpt"))
    with pytest.raises(ValueError, match=r"choice\.ckpt"):
        QuestionCheckpoint(choice, Asking(device="cpu"))
    content = torch.load(choice, weights_only=True)
    content[KEY]["encoding"]["colour"] = "red"
    torch.save(content, choice)
    with pytest.raises(ValueError, match=r"choice\.ckpt: .*colour"):
        ChoiceCheckpoint(choice, CPU)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny language model by kind."""
    folders: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = save(tmp_path_factory.mktemp("models") / kind, kind)
        return folders[kind]

    return build


def by_hand(model: Any, prompt: str, choice: str) -> tuple[float, int]:
    """log P(choice | prompt) and its tokens, one forward pass and a loop."""
    first = model.tokenizer(prompt)["input_ids"]
    second = model.tokenizer(choice, add_special_tokens=False)["input_ids"] + [1] * model.is_seq2seq
    with torch.no_grad():
        if model.is_seq2seq:
            inputs = {"input_ids": torch.tensor([first]), "labels": torch.tensor([second])}
            log = model.model(**inputs).logits[0].log_softmax(-1)
            return sum(float(log[i, token]) for i, token in enumerate(second)), len(second)
        log = model.model(input_ids=torch.tensor([first + second])).logits[0].log_softmax(-1)
    return sum(float(log[len(first) - 1 + i, token]) for i, token in enumerate(second)), len(second)


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_a_logit_is_the_log_likelihood_of_the_choice(folder_of: Callable[[str], Path], kind: str) -> None:
    wording = CHOICE_WORDINGS["unifiedqa" if kind == "t5" else "plain"]
    for likelihood in ("mean", "sum"):
        chooser = open_chooser(f"hf:{folder_of(kind)}", CPU, likelihood=likelihood)  # type: ignore[arg-type]
        assert isinstance(chooser, LanguageModel)
        assert chooser.choice_wording == wording, "the default goes by the kind of model"
        for example, logit_C in zip(SIMPLE, chooser.choice_logits(SIMPLE), strict=True):
            for choice, logit in zip(example.choices, logit_C, strict=True):
                total, tokens = by_hand(chooser.model, choice_prompt(example, wording), choice)
                expected = total / tokens if likelihood == "mean" else total
                assert logit == pytest.approx(expected, rel=1e-4)


def test_choices_behind_a_plain_prompt_do_not_see_each_other(folder_of: Callable[[str], Path]) -> None:
    chooser = open_chooser(f"hf:{folder_of('gpt2')}", CPU)
    (straight,) = chooser.choice_logits(SIMPLE[:1])
    (turned,) = chooser.choice_logits([replace(SIMPLE[0], choices=SIMPLE[0].choices[::-1])])
    assert turned[::-1] == pytest.approx(straight, rel=1e-5)


TEMPLATE = "{% for m in messages %}{{ m.role[0] + ' ' + m.content + ' . ' }}{% endfor %}"
NO_SYSTEM = TEMPLATE.replace("m.role[0]", "(raise_exception('no') if m.role == 'system' else 'a')")


@pytest.mark.parametrize("chat", ["", TEMPLATE, NO_SYSTEM])
def test_a_system_message_stands_before_everything(tmp_path: Path, chat: str) -> None:
    chooser = open_chooser(f"hf:{save(tmp_path / 'gpt2', 'gpt2', chat=chat)}", CPU)
    told = chooser.reading(system="the cat ran")
    plain, advised = (list(model.choice_logits(SIMPLE)) for model in (chooser, told))
    assert [logit_C.tolist() for logit_C in chooser.choice_logits(SIMPLE)] == [row.tolist() for row in plain]
    (text,) = [told.model._templated("who ?")] if chat else ["the cat ran\n\nwho ?"]
    assert (
        text
        == {
            "": "the cat ran\n\nwho ?",
            TEMPLATE: "s the cat ran . u who ? . ",
            NO_SYSTEM: "a the cat ran\n\nwho ? . ",
        }[chat]
    )
    for example, before, after in zip(SIMPLE, plain, advised, strict=True):
        assert not np.allclose(before, after)
        if chat != TEMPLATE:  # elsewhere it is a part of the prompt
            (expected,) = chooser.choice_logits([replace(example, prompt=f"the cat ran\n\n{example.prompt}")])
            np.testing.assert_allclose(after, expected, rtol=1e-4)


def test_a_question_that_does_not_fit_is_named(folder_of: Callable[[str], Path]) -> None:
    chooser = open_chooser(f"hf:{folder_of('gpt2')}", CPU)
    with pytest.raises(DataError, match="long one"):
        list(chooser.choice_logits([ChoiceQuestion("long one", "the cat " * 20, ("on", "under"), 0)]))
    many = ChoiceQuestion("many", "why", tuple(map(str, range(30))), 0)
    with pytest.raises(DataError, match="question many: 30 choices"):
        choice_prompt(many, CHOICE_WORDINGS["unifiedqa"])
    assert choice_prompt(many, CHOICE_WORDINGS["plain"]).startswith("why"), "which needs no letters"
    with pytest.raises(DataError, match="30 choices"):  # before anything is asked
        check_model(f"hf:{folder_of('t5')}", "auto", most=30, embeds=False)


def test_a_language_model_and_an_encoder_run_side_by_side(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """A random head, under whatever encoder, is right by chance alone, and every hits@n is 1."""
    things = ("cat", "dog", "mat", "red", "blue", "ran")
    examples = (
        ChoiceQuestion(thing, f"where {thing} ?", (f"the {thing} sat", "a mat is not red"), 0, "toy")
        for thing in things
    )
    write_choices(tmp_path / "rows.jsonl", examples)
    encoder = str(save_folder(tmp_path / "encoder"))
    models = [f"gpt=hf:{folder_of('gpt2')}", f"random={encoder}"]
    flags = ["--trials", "2", "--choices", "3", "--instances", "4", "--encoder", encoder]
    source = ["--input", str(tmp_path / "rows.jsonl")]
    cells = evaluate(tmp_path / "out", "confusion", "--checkpoint", *models, *source, *flags)
    for model in ("gpt", "random"):
        cell = {"checkpoint": model, "probe": "choice_paralysis", "sampling": "heuristic", "n_choices": "3"}
        assert cells("hits", **cell, k=3) == 1
        assert cells.n("pseudo_accuracy", checkpoint=model, probe="no_question") == 6
    donors: dict[str, list[list[int]]] = {"gpt": [], "random": []}
    for row in examples_of(tmp_path / "out"):
        if row.get("sampling") == "heuristic":
            donors[row["checkpoint"]].append(row["donors"])
    assert donors["gpt"] == donors["random"], "one encoder, the same choices for all"


def letters(prompt: str, _: int) -> Reply:
    """A chat model that likes the letter A, and what is right more."""
    lines = re.findall(r"^([A-Z])\. (.*)$", prompt, re.M)
    values = {letter: 1.0 * (letter == "A") + 2.0 * ("right" in text) for letter, text in lines}
    total = math.log(sum(map(math.exp, values.values())))
    tops = [{"token": f" {letter}", "logprob": value - total} for letter, value in values.items()]
    content = [{**tops[0], "top_logprobs": tops}]
    choice = {"index": 0, "message": {"content": "A"}, "logprobs": {"content": content}}
    return Reply(body=json.dumps({"choices": [choice]}))


def test_choices_by_letter_stand_behind_every_letter_once(tmp_path: Path) -> None:
    questions = [
        ChoiceQuestion(f"{i}", f"What of {i}?", tuple(f"{what} {i}" for what in texts), label, "toy")
        for i, (texts, label) in enumerate(
            ((("right", "wrong", "bad"), 0), (("wrong", "bad", "right"), 2), (("bad", "right", "wrong"), 1))
        )
    ]
    write_choices(tmp_path / "rows.jsonl", questions)
    with serve(letters) as endpoint:
        model = f"m=openai:m@{endpoint.url}"
        flags = ["--input", str(tmp_path / "rows.jsonl"), "--prompt", "letters", "--probes", "no-question"]
        cells = evaluate(tmp_path / "out", "confusion", "--checkpoint", model, *flags)
        assert endpoint.prompts[0] in [
            f"What of {i}?\nA. {a}\nB. {b}\nC. {c}\nAnswer:"
            for i, q in enumerate(questions)
            for a, b, c in (q.choices, q.choices[1:] + q.choices[:1], q.choices[2:] + q.choices[:2])
        ]
        assert len(endpoint.prompts) == 18, "three orders of three questions, with the question and without"
    e = math.e
    first, later = (
        e**3 / (e**3 + 2),
        e**2 / (e**2 + e + 1),
    )  # of what is right, behind A and behind the others
    place = {"checkpoint": "m", "probe": "original"}
    assert cells("confidence", **place) == pytest.approx((first + 2 * later) / 3, rel=1e-5)
    assert (cells("accuracy", **place), cells("same_pick", **place)) == (1, 1)
    at_a = (first + 2 * e / (e**2 + e + 1)) / 3
    assert cells("slot_preference", **place, slot=0) == pytest.approx(at_a, rel=1e-5)
    assert cells("slot_preference", **place, slot=1) == pytest.approx((1 - at_a) / 2, rel=1e-5)
    assert cells.n("slot_preference", **place, slot=2) == 3
    assert "Which letter is preferred" in (tmp_path / "out" / "report.md").read_text()


def test_a_decoder_of_ours_chooses_as_its_folder_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 320, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 3}
    backbone = Backbone(architecture="llama", checkpoint="random", config=sizes)
    model = start(backbone, CausalModel)
    tokenizer = build_tokenizer("llama", vocabulary())
    model.to_pretrained().save_pretrained(tmp_path / "folder")
    tokenizer.save_pretrained(tmp_path / "folder")
    path = tmp_path / "a.ckpt"
    saved = describe(model, tokenizer_files(tokenizer), {})
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": weights, KEY: saved}, path)
    own, folder = open_chooser(str(path), CPU), open_chooser(f"hf:{tmp_path / 'folder'}", CPU)
    for one, other in zip(own.choice_logits(QUESTIONS), folder.choice_logits(QUESTIONS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
