"""Language models as answerers: scores of subjects against transformers, and failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from data_modules.schema import Group, Span, UnderspecifiedQuestion
from evaluation.answering.interface import Answer, Asking, Choosing
from evaluation.answering.language_model import LanguageModel
from evaluation.answering.open import open_answerer
from evaluation.answering.prompts import PromptStyle, subject_prompt
from models.language.text_models import TextFailure, TextModel
from tests.data_modules.fixtures.fake_endpoint import Reply, serve
from tests.data_modules.fixtures.tiny_language_models import save
from tests.evaluation.answering.test_prompts import EXAMPLE


class Scripted(TextModel):
    """Says the same lines to anything."""

    name, settings, can, is_seq2seq = "scripted", {}, frozenset(), False  # type: ignore[var-annotated]

    def __init__(self, *lines: str | TextFailure) -> None:
        self.lines = lines

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        yield from self.lines[: len(prompts)]


def test_failures_carry_their_reason_and_silence_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("Red.", TextFailure("the endpoint timed out", "60 s"), "Answer:", "No.")
    monkeypatch.setattr(
        "evaluation.answering.language_model.open_text_model", lambda *_, **__: Scripted(*lines)
    )
    examples = [replace(EXAMPLE, question=f"{i}?") for i in range(4)]
    assert list(LanguageModel("openai:scripted", Choosing()).answers(examples)) == [
        Answer(0, "Red"),
        Answer(1, "", "the endpoint timed out"),
        Answer(2, "", "empty answer"),
        Answer(3, "no"),
    ]


# Subjects of one and of two tokens; short, as the tiny causal model reads 24 tokens.
STORIES = ("dog sat . red cat ran .", "red cat ran . dog sat .")
VARIANTS = tuple(
    UnderspecifiedQuestion(story, question, tuple(Span.locate(x, story, "t") for x in ("dog", "red cat")))  # type: ignore[arg-type]
    for story in STORIES
    for question in ("who ?", "where ?")
)
GROUP = Group(("dog", "red cat"), "t", "c", "a", "none", "", VARIANTS)  # type: ignore[arg-type]


def naive(folder: Path, prompt: str, subject: str, *, seq2seq: bool) -> float:
    """The geometric mean of the tokens' probabilities, by transformers' own model, one token at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    model = kind.from_pretrained(folder).eval()
    source = tokenizer(prompt, return_tensors="pt")["input_ids"]
    written = torch.tensor([[0]])
    product = 1.0
    tokens = tokenizer(subject, add_special_tokens=False)["input_ids"] + [1] * seq2seq
    for token in tokens:
        with torch.no_grad():
            decoder = {"decoder_input_ids": written} if seq2seq else {}
            logits = model(input_ids=source, **decoder).logits
        product *= float(logits[0, -1].double().softmax(-1)[token])
        written = torch.cat([written, torch.tensor([[token]])], 1)
        source = source if seq2seq else torch.cat([source, torch.tensor([[token]])], 1)
    return product ** (1 / len(tokens))


@pytest.mark.parametrize(("kind", "style"), [("t5", "unifiedqa"), ("t5", "paper"), ("gpt2", "unifiedqa")])
def test_subject_scores_are_geometric_means_of_their_tokens(
    kind: str, style: PromptStyle, tmp_path: Path
) -> None:
    folder = save(tmp_path / kind, kind)
    asking = Asking(device="cpu", batch_size=3, max_new_tokens=4, prompt=style)
    answerer = open_answerer(f"hf:{folder}", asking, need="subjects")
    score_NVS = answerer.subject_scores([GROUP, GROUP])
    assert score_NVS.shape == (2, 4, 2)
    torch.testing.assert_close(score_NVS[0], score_NVS[1], rtol=1e-5, atol=1e-6)  # other batches
    for v, variant in enumerate(GROUP.variants):
        for s, subject in enumerate(GROUP.subjects):
            expected = naive(folder, subject_prompt(variant, style), subject, seq2seq=kind == "t5")
            assert float(score_NVS[0, v, s]) == pytest.approx(expected, rel=1e-4)
    assert len({round(float(x), 6) for x in score_NVS[0].flatten()}) == 8


def test_endpoint_without_likelihoods_is_refused_for_subjects() -> None:
    with serve(lambda _, __: Reply(status=400), prompt_of=str) as endpoint:
        with pytest.raises(ValueError, match="does not tell the log-probabilities"):
            open_answerer(f"openai:m@{endpoint.url}", Asking(), need="subjects")
        assert len(endpoint.requests) == 1
