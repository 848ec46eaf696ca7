"""Language models: scores of subjects and choices against transformers, and failures."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interventune.data_modules.encoding.prompts import group_prompts
from interventune.data_modules.schema.groups import Group, UnderspecifiedQuestion
from interventune.data_modules.schema.questions import ChoiceQuestion, Span
from interventune.evaluation.answering.interface import Choosing, open_answerer
from interventune.evaluation.answering.language_model import (
    STYLES,
    LanguageModel,
    choice_prompt,
    in_style,
)
from interventune.models.language.text_models import Prompt, TextFailure, TextModel
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.answering.test_prompts import EXAMPLE
from tests.models.language.conftest import loaded, log_likelihood


class Scripted(TextModel):
    """Says the same lines to anything."""

    name, identity = "scripted", {}  # type: ignore[var-annotated]

    def __init__(self, *lines: str | TextFailure) -> None:
        self.lines = lines

    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        yield from self.lines[: len(prompts)]


def test_failures_carry_their_reason_and_silence_is_one() -> None:
    model = Scripted("Red.", TextFailure("the endpoint timed out", "60 s"), "Answer:", "No.")
    examples = [replace(EXAMPLE, question=f"{i}?") for i in range(4)]
    answers = list(LanguageModel("scripted", Choosing(), model).answers(examples))
    failures = [(1, "", "the endpoint timed out"), (2, "", "empty answer")]
    expected = [(0, "Red", ""), *failures, (3, "no", "")]
    assert [(answer.example, answer.text, answer.failure) for answer in answers] == expected


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny language model by kind."""
    home = tmp_path_factory.mktemp("models")
    return {kind: save(home / kind, kind) for kind in ("gpt2", "t5")}.__getitem__


def by_hand(folder: Path, prompt: str, text: str) -> tuple[float, int]:
    """log P(text | prompt) and its tokens, by transformers' own model, one token at a time."""
    tokens = loaded(folder)[1](text, add_special_tokens=False)["input_ids"]
    return log_likelihood(folder, prompt, text), len(tokens) + (folder.name == "t5")


# Subjects of one and of two tokens; short, as the tiny causal model reads 24 tokens.
STORIES, SUBJECTS = ("dog sat . red cat ran .", "red cat ran . dog sat ."), ("dog", "red cat")
SPANS: Any = {x: tuple(Span.locate(subject, x, "t") for subject in SUBJECTS) for x in STORIES}
QUESTIONS = [(story, question) for story in STORIES for question in ("who ?", "where ?")]
VARIANTS: Any = tuple(UnderspecifiedQuestion(*both, SPANS[both[0]]) for both in QUESTIONS)
GROUP = Group(SUBJECTS, "t", "c", "a", "none", "", VARIANTS)


@pytest.mark.parametrize("how", ["t5 unifiedqa", "t5 paper", "gpt2 unifiedqa"])
def test_scores_of_subjects_by_hand(how: str, folder_of: Callable[[str], Path]) -> None:
    kind, style = how.split()
    folder = folder_of(kind)
    asking = Choosing(device="cpu", batch_size=3, prompt=style)  # type: ignore[arg-type]
    model = open_answerer(f"hf:{folder}", asking, need="subjects")
    score_NVS = model.subject_scores([GROUP, GROUP])
    assert score_NVS.shape == (2, 4, 2)
    torch.testing.assert_close(score_NVS[0], score_NVS[1], rtol=1e-5, atol=1e-6)  # other batches
    for v, prompt in enumerate(group_prompts([GROUP], STYLES[style])):
        text = in_style(prompt.messages[0]["content"], style)
        by_subject = [by_hand(folder, text, subject) for subject in GROUP.subjects]
        means = [math.exp(total / tokens) for total, tokens in by_subject]
        expected = means if kind == "t5" else [mean / sum(means) for mean in means]
        assert score_NVS[0, v].tolist() == pytest.approx(expected, rel=1e-4)
    assert len({round(float(x), 6) for x in score_NVS[0].flatten()}) == 8


CHOICES = [
    ChoiceQuestion("0", "where is the cat ?", ("on the mat", "under the red mat ."), 0),
    ChoiceQuestion("1", "", ("the dog ran", "the cat"), 1),
]


@pytest.mark.parametrize("likelihood", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_logits_by_hand(kind: str, likelihood: Any, folder_of: Callable[[str], Path]) -> None:
    folder = folder_of(kind)
    asking = Choosing(device="cpu", likelihood=likelihood)
    logits = open_answerer(f"hf:{folder}", asking, need="choices").choice_logits(CHOICES)
    for example, logit_C in zip(CHOICES, logits, strict=True):
        prompt = choice_prompt(example, "unifiedqa" if kind == "t5" else "plain")
        for choice, logit in zip(example.choices, logit_C, strict=True):
            total, tokens = by_hand(folder, prompt, choice)
            expected = total / tokens if likelihood == "mean" else total
            assert logit == pytest.approx(expected, rel=1e-4)


def letters(prompt: str, _: int) -> Reply:
    """A chat model that likes the letter A, and what is right more; of C it says nothing."""
    lines = re.findall(r"^([AB])\. (.*)$", prompt, re.M)
    values = {letter: 1.0 * (letter == "A") + 2.0 * ("right" in text) for letter, text in lines}
    total = math.log(sum(map(math.exp, values.values())))
    tops = [{"token": f" {letter}", "logprob": value - total} for letter, value in values.items()]
    content = [{**tops[0], "top_logprobs": tops}]
    choice = {"index": 0, "message": {"content": "A"}, "logprobs": {"content": content}}
    return Reply(body=json.dumps({"choices": [choice]}))


def test_letter_logits_are_those_of_the_letters() -> None:
    first = ChoiceQuestion("0", "What?", ("right", "wrong", "bad"), 0)
    questions = [first, ChoiceQuestion("1", "Which?", ("wrong", "right"), 1)]
    with serve(letters) as endpoint:
        how = Choosing(choice_prompt="letters", parallel=1)
        model = open_answerer(f"openai:m@{endpoint.url}", how, need="choices")
        logits = model.choice_logits(questions)
        assert endpoint.prompts[0] == "What?\nA. right\nB. wrong\nC. bad\nAnswer:"
    expected = [np.log(np.exp(values) / np.exp(values).sum()) for values in ([3, 0], [1, 2])]
    np.testing.assert_allclose(logits[0], [*expected[0], -100], atol=1e-5)
    np.testing.assert_allclose(logits[1], expected[1], atol=1e-5)
