"""evaluation/prompting: what language models are asked, what their words mean, and what subjects score."""

from __future__ import annotations

import argparse
import doctest
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import evaluation.answering.prompting
from data_modules.groups.lei import write_lei
from data_modules.schema import Group, QAExample, Span, Turn, UnderspecifiedQuestion
from evaluation.__main__ import main
from evaluation.answering.answerers import Said, open_answerer
from evaluation.answering.prompting import (
    PromptedModel,
    PromptStyle,
    choice_prompt,
    question_prompt,
    short_answer,
)
from evaluation.protocols.bias.command import named_sources
from models.language.text_models import Settings, TextFailure, TextModel
from tests.data_modules.fake_endpoint import Reply, serve
from tests.data_modules.tiny_language_models import save
from tests.evaluation.checkpoints import QUESTIONS, examples_of, report_of, save_questions, told

EXAMPLE = QAExample(
    "1",
    "Tom has a {red} bike.",
    "What has Tom?",
    advice="Note that, bikes are red.",
    history=(Turn("q1", "a1"), Turn("Who came?", "Tom"), Turn("Why?", "unknown")),
)
PLAIN = """Text: Tom has a {red} bike.

Question: Who came?
Answer: Tom
Question: Why?
Answer: unknown
Question: Note that, bikes are red. What has Tom?
Reply with a few words of the text, or with yes or no, or with unknown if the text does not say.
Answer:"""
UNIFIEDQA = r"who came? tom why? unknown what has tom? \n tom has a {red} bike. note that, bikes are red."


class Scripted(TextModel):
    """A text model that says the same lines to anything."""

    name, can = "scripted", frozenset({"write"})

    def __init__(self, *lines: str | TextFailure) -> None:
        self.lines = lines
        self.settings: Settings = {}

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        yield from self.lines[: len(prompts)]


def test_the_examples_in_docstrings() -> None:
    assert doctest.testmod(evaluation.answering.prompting).failed == 0


@pytest.mark.parametrize(("style", "expected"), [("plain", PLAIN), ("unifiedqa", UNIFIEDQA)])
def test_a_question_becomes_a_prompt(style: PromptStyle, expected: str) -> None:
    assert question_prompt(EXAMPLE, style) == expected


def asked(first: str, second: str, story: str, question: str = "Who ran?") -> UnderspecifiedQuestion:
    """`candidates` in the order of the subjects, wherever they stand in the story."""
    spans = (Span.locate(first, story, "t"), Span.locate(second, story, "t"))
    return UnderspecifiedQuestion(story, question, spans, "Note that, X.")


@pytest.mark.parametrize("story", ["A Tolin met a Kessar.", "A Kessar met a Tolin."])
def test_the_encoding_of_lei_for_unifiedqa(story: str) -> None:
    """Lower-case `question \\n (a) x1 (b) x2 \\n context. note that ...`, options in the context's order."""
    one, two = ("kessar", "tolin") if story.startswith("A K") else ("tolin", "kessar")
    expected = rf"who ran? \n (a) {one} (b) {two} \n a {one} met a {two}. note that, x."
    assert choice_prompt(asked("Kessar", "Tolin", story), "unifiedqa") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("Yes, he did so.", "yes"),
        ("**No**, because", "no"),
        ('"No," she said', "no"),
        ("Unknown (not stated)", "unknown"),
        ("Yes - it was", "yes"),
        ("no answer>", "unknown"),
        ("<No Answer>", "unknown"),
        ("No one", "No one"),
        ("No-one came", "No-one came"),
        ("Unknown soldiers", "Unknown soldiers"),
        ("Yes it is", "Yes it is"),
        ("No. 5", "No. 5"),
        ("the answer is: 'red.'", "red"),
        ("\n Answer:\n a red bike.\nQuestion: Why?", "a red bike"),
        ('the "Red Lion"', 'the "Red Lion"'),
        ("wait...", "wait..."),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_what_a_model_means(text: str, expected: str) -> None:
    assert short_answer(text) == expected


WORDS = ["red", "no", "bike", "yes", "Tom's", "unknown", "U.S", "5", "—", "(a)"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)


@given(words.map(" ".join), st.sampled_from(["{}", '"{}"', "{}.", "Answer: {}", " {}\nMore: text", "**{}**"]))
def test_wrapping_changes_nothing(text: str, wrapping: str) -> None:
    assert short_answer(wrapping.format(text)) == short_answer(text)


def test_failures_carry_their_reason_and_silence_is_one() -> None:
    lines = ("Red.", TextFailure("the endpoint timed out", "60 s"), "Answer:", "No.")
    assert list(PromptedModel(Scripted(*lines)).said([EXAMPLE] * 4)) == [
        Said(0, "Red"),
        Said(1, "", "the endpoint timed out"),
        Said(2, "", "empty answer"),
        Said(3, "no"),
    ]


# Subjects of one and of two tokens; short, as the tiny causal model reads 24 tokens.
STORIES = ("dog sat . red cat ran .", "red cat ran . dog sat .")
GROUP = Group(
    ("dog", "red cat"),
    "t",
    "c",
    "a",
    "none",
    "",
    tuple(  # type: ignore[arg-type]
        UnderspecifiedQuestion(story, question, asked("dog", "red cat", story).candidates)
        for story in STORIES
        for question in ("who ?", "where ?")
    ),
)


def naive(folder: Path, prompt: str, subject: str, *, seq2seq: bool) -> float:
    """The geometric mean of the tokens' probabilities, by transformers' own model, one token at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    model = kind.from_pretrained(folder).eval()
    source = tokenizer(prompt, return_tensors="pt")["input_ids"]
    written = torch.tensor([[0]])
    product = 1.0
    tokens = tokenizer(subject, add_special_tokens=False)["input_ids"]
    for token in tokens:
        with torch.no_grad():
            if seq2seq:
                logits = model(input_ids=source, decoder_input_ids=written).logits
            else:
                logits = model(input_ids=source).logits
        product *= float(logits[0, -1].double().softmax(-1)[token])
        written = torch.cat([written, torch.tensor([[token]])], 1)
        source = source if seq2seq else torch.cat([source, torch.tensor([[token]])], 1)
    return product ** (1 / len(tokens))


@pytest.mark.parametrize(("kind", "style"), [("t5", "unifiedqa"), ("t5", "plain"), ("gpt2", "unifiedqa")])
def test_subjects_score_the_geometric_mean_of_their_tokens(
    kind: str, style: PromptStyle, tmp_path: Path
) -> None:
    folder = save(tmp_path / kind, kind)
    args = argparse.Namespace(
        max_new_tokens=4, device="cpu", batch_size=3, requests=None, max_requests=None, prompt=style
    )
    model = open_answerer(f"hf:{folder}", args)
    assert isinstance(model, PromptedModel)
    score_NVS = model.group_scores([GROUP, GROUP])
    assert score_NVS.shape == (2, 4, 2)
    torch.testing.assert_close(score_NVS[0], score_NVS[1], rtol=1e-5, atol=1e-6)  # other batches
    for v, variant in enumerate(GROUP.variants):
        for s, subject in enumerate(GROUP.subjects):
            expected = naive(folder, choice_prompt(variant, style), subject, seq2seq=kind == "t5")
            assert float(score_NVS[0, v, s]) == pytest.approx(expected, rel=1e-4)
    assert len({round(float(x), 6) for x in score_NVS[0].flatten()}) == 8


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.json"
    write_lei([GROUP], path)
    return path


def test_bias_of_a_language_model(groups: Path, tmp_path: Path) -> None:
    """The ordinary report, from the scores of UnifiedQA's encoding, with the encoding on the page."""
    folder = save(tmp_path / "t5", "t5")
    report = report_of(tmp_path / "r", "bias", "--checkpoint", f"uqa=hf:{folder}", "--data", groups)
    (row,) = examples_of(tmp_path / "r")
    for v, variant in enumerate(GROUP.variants):
        for s, subject in enumerate(GROUP.subjects):
            expected = naive(folder, choice_prompt(variant, "unifiedqa"), subject, seq2seq=True)
            assert row["scores"][v][s] == pytest.approx(expected, rel=1e-4)
    assert report["n"] == 1
    assert report["about"]["prompt"]["style"] == "unifiedqa"
    assert "geometric mean of the probabilities" in (tmp_path / "r" / "report.md").read_text()
    plain = ("bias", "--checkpoint", f"hf:{folder}", "--data", groups, "--prompt", "plain")
    questions = ("--qa", save_questions(tmp_path / "qa.json"), "--max-new-tokens", "3")
    other = report_of(tmp_path / "s", *plain, *questions)
    assert other["mean_abs_c"] != report["mean_abs_c"]
    assert 0 < other["qa/n"] <= len(QUESTIONS)


def test_an_endpoint_has_no_likelihoods(
    groups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--data", groups, "--output", tmp_path / "r")
    message = told(capsys, "bias", "--checkpoint", "openai:gpt-4o", *flags)
    assert "openai:gpt-4o: bias needs the likelihood" in message


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("hf:google/flan-t5-base", "flan-t5-base"),
        ("hf:gpt2", "gpt2"),
        ("openai:gpt-4.1", "gpt-4.1"),
        ("openai:llama3@http://localhost:1/v1", "llama3"),
        ("me=openai:llama3@http://localhost:1/v1", "me"),
        ("runs/a/last.ckpt", "last"),
    ],
)
def test_what_a_model_without_a_name_is_called(argument: str, name: str) -> None:
    assert named_sources([argument], "--checkpoint") == [(name, argument.removeprefix("me="))]


def test_a_bounded_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over real HTTP: questions left out are counted, the next run asks only those, and no key is written."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123456")
    rows = [
        {"id": i, "question": f"Q{i}?", "answer_org": "yes", "answer_mod": "no"}
        | {"story_org": f"It was {i}.", "story_mod": f"It was not {i}."}
        for i in range(3)
    ]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serve(lambda prompt, _: Reply("No, it was not." if "was not" in prompt else "Yes.")) as endpoint:
        flags: list[Any] = ["--pairs", pairs, "--requests", tmp_path / "asked.jsonl", "--batch-size", 1]
        command = ["negation", "--checkpoint", f"llm=openai:m@{endpoint.url}", *map(str, flags)]
        first = report_of(tmp_path / "a", *command, "--max-requests", "4")
        assert (first["n"], first["failures"], first["comb_acc"]) == (2, 1, 1.0)
        assert len(endpoint.requests) == 4
        second = report_of(tmp_path / "b", *command)
        assert (second["n"], second["failures"], second["comb_acc"]) == (3, 0, 1.0)
        assert len(endpoint.requests) == 6
    assert endpoint.prompts[0] == PLAIN.replace("Tom has a {red} bike.", "It was 0.").replace(
        PLAIN[PLAIN.index("Question: Who") : PLAIN.index("\nReply")], "Question: Q0?"
    )
    written = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert "secret" not in written + capsys.readouterr().err
    assert "1 max requests reached" in (tmp_path / "a" / "report.md").read_text()


def test_a_local_model_answers_probes(tmp_path: Path) -> None:
    """Whatever it says: every question is either counted or a failure."""
    folder = save(tmp_path / "t5", "t5")
    report = report_of(
        tmp_path / "r", "predicate-argument", "--checkpoint", f"hf:{folder}", "--max-new-tokens", "3"
    )
    assert report["org/n"] + report["org/failures"] == 520


def test_mistakes_cost_one_line(groups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--data", groups, "--output", tmp_path / "r")
    assert "absent" in told(capsys, "bias", "--checkpoint", f"hf:{tmp_path / 'absent'}", *flags)
    with pytest.raises(SystemExit):
        main(["bias", "--checkpoint", "hf:x", "--prompt", "other", *map(str, flags)])
    with pytest.raises(ValueError, match="--prompt"):
        PromptedModel(Scripted(), prompt="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scripted cannot score"):
        PromptedModel(Scripted()).group_scores([GROUP])
