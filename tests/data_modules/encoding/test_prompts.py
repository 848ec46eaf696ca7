"""Rows of decoders: where contexts, prompts and what stands behind them are in tokens."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from data_modules.batching.group_set import GroupSet
from data_modules.batching.sets import QASet
from data_modules.encoding.prompts import (
    TEMPLATE_OPTIONS,
    Prompt,
    encode_prompts,
    group_prompt,
    plain_text,
    prompt,
)
from data_modules.encoding.windows import Encoding, tell_once
from data_modules.schema import AdviceAt, Asked, QAExample, Span, Turn, UnderspecifiedQuestion
from data_modules.stories import groups as story_groups
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from storage.errors import DataError

ENCODING = Encoding().resolved("llama")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_subjects_stand_behind_the_prompt_in_the_groups_order(architecture: str, side: str) -> None:
    tokenizer = build_tokenizer(architecture, [*vocabulary(), "reply", "with", "or"])  # type: ignore[arg-type]
    tokenizer.padding_side = side
    groups = list(islice(story_groups.groups("train"), 3))
    batch = GroupSet(groups, tokenizer, ENCODING)[[2, 0, 1]]
    for b, i in enumerate((2, 0, 1)):
        for v, variant in enumerate(groups[i].variants):
            ids_T = batch.inputs["input_ids"][4 * b + v]
            for s, (start, end) in enumerate(batch.candidate_BVSE[b, v].tolist()):
                written = tokenizer.decode(ids_T[start : end + 1])
                assert written.replace(" ", "") == groups[i].subjects[s].replace(" ", "")
            context = tokenizer.decode(ids_T[batch.context_BT[4 * b + v]])
            assert (
                context.split()[:3]
                == tokenizer.decode(tokenizer(variant.context)["input_ids"]).split()[-len(context.split()) :][
                    :3
                ]
            )
            offered = [span.text.lower() for span in sorted(variant.candidates, key=lambda c: c.start)]
            assert f"reply with {offered[0]} or {offered[1]}" in tokenizer.decode(ids_T)


def test_what_is_written_ends_with_an_end_token() -> None:
    tokenizer = build_tokenizer(
        "gpt2", ["text", "question", "answer", "unknown", "anna", "sits", "who", "yes"]
    )
    context = "Anna sits"
    examples = [
        QAExample("1", context, "Who?", (Span(0, 4, "Anna"),), references=("somebody",)),
        QAExample("2", context, "Who?", references=("somebody",), variant="ts_r"),
        QAExample("3", context, "Who?", answer_type="yes", history=(Turn("Anna?", "Yes"),)),
    ]
    batch = QASet(examples, tokenizer, Encoding().resolved("gpt2"))[[0, 1, 2]]
    written = [
        tokenizer.decode(ids_T[start : end + 1])
        for ids_T, start, end in zip(batch.inputs["input_ids"], batch.start_B, batch.end_B, strict=True)
    ]
    assert written == ["anna </s>", "unknown </s>", "yes </s>"]
    assert batch.answer_type_B.tolist() == [3, 2, 0]
    assert "answer <unk> yes question" in tokenizer.decode(batch.inputs["input_ids"][2])


def test_tokens_behind_the_prompt_are_those_of_one_text() -> None:
    """Unless the prompt's own would change with it: 'a' and ' b' are 'a b' here."""
    pieces = ["[U]", "x", "a", " ", "b", " b", "a b"]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [(" ", "b"), ("a", " b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("x", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[U]")
    prompts = [Prompt("x", 0, 1, ("b", "a"), "one"), Prompt("xa", 0, 1, ("b",), "two")]
    one, two, three = encode_prompts([*prompts, Prompt("x b", 2, 1, (), "three")], fast, 10)
    assert [pieces[i] for i in one.input_ids_T] == ["x", " b", " ", "a"]
    assert one.spans == [(1, 1), (2, 3)]
    assert [pieces[i] for i in two.input_ids_T] == ["x", "a", " b"]
    np.testing.assert_array_equal(one.offsets_TE[:, 0], [0, -1, -1, -1])
    np.testing.assert_array_equal(three.offsets_TE, [[-1, -1], [0, 1]])


def test_a_space_at_the_end_of_the_template_goes_over_to_the_answer() -> None:
    asked = Asked("anna sits .", "who ?", "one", "")
    with_space, without = (prompt(f"{{context}} {{question}} so{end}", asked, "user") for end in (" ", ""))
    assert with_space == without


def test_rows_are_never_cut() -> None:
    tokenizer = build_tokenizer("llama", vocabulary())
    groups = list(islice(story_groups.groups("train"), 1))
    with pytest.raises(DataError, match=r"prompt and answers take \d+ tokens, 20 are allowed; raise"):
        GroupSet(groups, tokenizer, Encoding(max_length=20, stride=0).resolved("llama"))


def test_a_prompt_that_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match=r"encoding.prompt: needs {context} and {question}"):
        Encoding(prompt="{question}")
    with pytest.raises(DataError, match=r"encoding.choice_prompt: cannot be filled in: 'story'"):
        Encoding(choice_prompt="{story}")
    with pytest.raises(DataError, match="is for decoders, and bert is an encoder"):
        Encoding(prompt="{context} {question}").resolved("bert")


TEMPLATES = {
    "system": "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    # As Gemma's: no system message, texts are stripped, a word of its own for the assistant.
    "none": "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}"
    "{% endif %}{{ '<|' + m.role + '|>\\n' + m.content | trim + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
    # As Llama 2's: white space before the answer, and nothing between the turns.
    "space": "{% for m in messages %}{% if m.role == 'system' %}{{ bos_token + m.content }}"
    "{% elif m.role == 'user' %}{{ '<|user|>' + m.content + '<|assistant|>' }}"
    "{% else %}{{ ' ' + m.content + ' <|end|>' }}{% endif %}{% endfor %}",
}


def chat_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """One token a byte, a begin of sequence before every text, and a chat template."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        additional_special_tokens=special,
    )
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", fast.bos_token_id)]
    )
    fast.chat_template = TEMPLATES[template]
    return fast


def asked_of(at: AdviceAt, *, has_system: bool) -> list[dict[str, str]]:
    """What a user says about Anna, in turns."""
    context, query, system = "Anna met Bo.", "Who?", ""
    if at == "context":
        context += " Be fair."
    elif at == "user":
        query = "Be fair. Who?"
    else:
        system = "Be fair."
    user = f"Text: {context}\n\nQuestion: {query}\nAnswer:"
    if system and has_system:
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return [{"role": "user", "content": "\n\n".join(filter(None, (system, user)))}]


@pytest.mark.parametrize("at", get_args(AdviceAt))
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_row_is_the_conversation_in_the_chat_template(template: str, at: AdviceAt) -> None:
    tokenizer = chat_tokenizer(template)
    example = QAExample("1", "Anna met Bo.", "Who?", (Span(9, 11, "Bo"),), advice="Be fair.")
    encoding = Encoding(advice_at=at).resolved("llama", tokenizer)
    assert encoding.chat == "always"
    batch = QASet([example], tokenizer, encoding)[[0]]
    turns = asked_of(at, has_system=template != "none")

    def ids(turns: list[dict[str, str]], **options: Any) -> list[int]:
        return tokenizer.apply_chat_template(turns, return_dict=False, **TEMPLATE_OPTIONS, **options)

    row_T = batch.inputs["input_ids"][0][batch.inputs["attention_mask"][0] != 0].tolist()
    assert row_T[: int(batch.cls_B) + 1] == ids(turns, add_generation_prompt=True)
    answered = ids([*turns, {"role": "assistant", "content": "Bo"}])
    if template == "space":  # the white space before its end token belongs to no answer
        del answered[-2]
    assert row_T == answered[: len(row_T)]
    assert tokenizer.decode(row_T[int(batch.start_B) :]).strip() == "Bo<|end|>"
    assert tokenizer.decode(batch.inputs["input_ids"][0][batch.context_BT[0]]) == "Anna met Bo."


@pytest.mark.parametrize("at", get_args(AdviceAt))
def test_where_advice_stands_in_a_plain_prompt(at: AdviceAt) -> None:
    spans = Span(9, 11, "Bo"), Span(0, 4, "Anna")
    question = UnderspecifiedQuestion("Anna met Bo.", "Who?", spans, "Be fair.")
    found = group_prompt(question, "key", "Text: {context}\n\nQuestion: {question}\nAnswer:", at)
    text, user_at = plain_text(found)
    turns = asked_of(at, has_system=False)
    assert text == turns[0]["content"]
    assert text[user_at + found.context_at :][: found.context_length] == "Anna met Bo."


def test_unknown_is_offered_behind_the_subjects() -> None:
    groups = list(islice(story_groups.groups("train"), 2))
    tokenizer = build_tokenizer("llama", [*vocabulary(), "reply", "with", "or", "unknown"])
    batch = GroupSet(groups, tokenizer, Encoding(offer_unknown=True).resolved("llama"))[[0, 1]]
    assert batch.candidate_BVSE.shape == (2, 4, 3, 2)
    for ids_T, spans in zip(batch.inputs["input_ids"], batch.candidate_BVSE.flatten(0, 1), strict=True):
        start, end = spans[2].tolist()
        assert tokenizer.decode(ids_T[start : end + 1]) == "unknown"
        assert " or unknown" in tokenizer.decode(ids_T[: int(spans[0, 0])])


def test_chat_and_places_of_advice_that_cannot_be(caplog: pytest.LogCaptureFixture) -> None:
    plain, chat = build_tokenizer("llama", vocabulary()), chat_tokenizer("none")
    assert Encoding().resolved("llama", plain).chat == "never"
    assert Encoding(chat="never").resolved("llama", chat).chat == "never"
    with pytest.raises(DataError, match=r"encoding\.chat: always, but the tokenizer has no chat template"):
        Encoding(chat="always").resolved("llama", plain)
    options: list[dict[str, Any]] = [{"chat": "always"}, {"advice_at": "system"}, {"offer_unknown": True}]
    for option in options:
        with pytest.raises(DataError, match=f"encoding.{min(option)}: is for decoders, and bert is an"):
            Encoding(**option).resolved("bert", plain)
    tell_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            Encoding(advice_at="system").resolved("llama", chat)
    assert [record.message for record in caplog.records] == [
        "the chat template has no system message: advice stands before the user's text"
    ]
    chat.chat_template = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
    with pytest.raises(DataError, match="1: the chat template changes the text of the message; set"):
        list(encode_prompts([Prompt("a?", 0, 1, (), "1")], chat_of(chat), 50, chat=True))


def chat_of(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The same anew: what was found out about its template is kept by tokenizer."""
    other = chat_tokenizer("none")
    other.chat_template = tokenizer.chat_template
    return other
