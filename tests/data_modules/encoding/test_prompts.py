"""Rows of decoders: where contexts, prompts and what stands behind them are in tokens."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from data_modules.batching.group_set import GroupSet
from data_modules.batching.sets import QASet
from data_modules.encoding.prompts import TEMPLATE_OPTIONS, Prompt, encode_prompts, fill, prompt_text
from data_modules.encoding.windows import CHOICE, QUESTION, Encoding, Messages, Prompts
from data_modules.schema import QAExample, Span, Turn
from data_modules.stories import groups as story_groups
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from storage.errors import DataError


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("offers_unknown", [False, True])
def test_subjects_stand_behind_the_prompt_in_the_groups_order(side: str, offers_unknown: bool) -> None:
    tokenizer = build_tokenizer("llama", [*vocabulary(), "reply", "with", "or", "unknown"])
    tokenizer.padding_side = side
    groups = list(islice(story_groups.groups("train"), 3))
    encoding = Encoding()
    if offers_unknown:
        content = CHOICE.replace("{options}", "{options} or unknown")
        encoding = Encoding(prompts=Prompts(choice_prompt=[{"role": "user", "content": content}]))
    batch = GroupSet(groups, tokenizer, encoding.resolved("llama"))[[2, 0, 1]]
    assert batch.candidate_BVSE.shape == (3, 4, 2 + offers_unknown, 2)
    for b, i in enumerate((2, 0, 1)):
        for v, variant in enumerate(groups[i].variants):
            ids_T = batch.inputs["input_ids"][4 * b + v]
            behind = [tokenizer.decode(ids_T[s : e + 1]) for s, e in batch.candidate_BVSE[b, v].tolist()]
            wanted = [*groups[i].subjects, "unknown"][: len(behind)]
            assert [text.replace(" ", "") for text in behind] == [text.replace(" ", "") for text in wanted]
            context = tokenizer.decode(ids_T[batch.context_BT[4 * b + v]])
            whole = tokenizer.decode(tokenizer(variant.context)["input_ids"]).split()
            assert context.split() == whole[-len(context.split()) :]
            offered = [span.text.lower() for span in sorted(variant.candidates, key=lambda c: c.start)]
            assert f"reply with {offered[0]} or {offered[1]}" in tokenizer.decode(ids_T)


def test_what_is_written_ends_with_an_end_token() -> None:
    tokenizer = build_tokenizer(
        "gpt2", ["text", "question", "answer", "unknown", "anna", "sits", "who", "yes"]
    )
    examples = [
        QAExample("1", "Anna sits", "Who?", (Span(0, 4, "Anna"),), references=("somebody",)),
        QAExample("2", "Anna sits", "Who?", references=("somebody",), variant="ts_r"),
        QAExample("3", "Anna sits", "Who?", answer_type="yes", history=(Turn("Anna?", "Yes"),)),
    ]
    batch = QASet(examples, tokenizer, Encoding().resolved("gpt2"))[[0, 1, 2]]
    written = [
        tokenizer.decode(ids_T[start : end + 1])
        for ids_T, start, end in zip(batch.inputs["input_ids"], batch.start_B, batch.end_B, strict=True)
    ]
    assert written == ["anna </s>", "unknown </s>", "yes </s>"]
    assert batch.answer_type_B.tolist() == [3, 2, 0]
    assert "answer <unk> yes question" in tokenizer.decode(batch.inputs["input_ids"][2])


def plain(text: str, context: str, continuations: tuple[str, ...], name: str) -> Prompt:
    shown = text[: text.index(context) + len(context)]
    return Prompt([{"role": "user", "content": text}], shown, len(context), continuations, name)


def test_tokens_behind_the_prompt_are_those_of_one_text() -> None:
    """Unless the prompt's own would change with it: 'a' and ' b' are 'a b' here."""
    pieces = ["[U]", "x", "a", " ", "b", " b", "a b"]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [(" ", "b"), ("a", " b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("x", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[U]")
    prompts = [plain("x", "x", ("b", "a"), "1"), plain("xa", "x", ("b",), "2"), plain("x b", "b", (), "3")]
    one, two, three = encode_prompts(prompts, fast, Encoding(max_length=10))
    assert [pieces[i] for i in one.input_ids_T] == ["x", " b", " ", "a"]
    assert one.spans == ((1, 1), (2, 3))
    assert [pieces[i] for i in two.input_ids_T] == ["x", "a", " b"]
    np.testing.assert_array_equal(one.offsets_TE[:, 0], [0, -1, -1, -1])
    np.testing.assert_array_equal(three.offsets_TE, [[-1, -1], [0, 1]])


def test_rows_are_never_cut() -> None:
    groups = list(islice(story_groups.groups("train"), 1))
    with pytest.raises(DataError, match=r"prompt and answers take \d+ tokens, 20 are allowed; raise"):
        GroupSet(groups, build_tokenizer("llama", vocabulary()), Encoding(max_length=20).resolved("llama"))


@pytest.mark.parametrize(
    "content", ["{question} {advice}", "{context} {advice} {question} {options}", "{context} {question} {}"]
)
def test_a_prompt_needs_each_of_its_slots_once(content: str) -> None:
    with pytest.raises(DataError, match=r"encoding\.prompts\.prompt: needs each of"):
        Prompts(prompt=[{"role": "user", "content": content}])


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
    "loud": "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
}


def chat_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """One token a byte, a begin of sequence before every text, and a chat template."""
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=special, **names)
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", fast.bos_token_id)]
    )
    fast.chat_template = TEMPLATES[template]
    return fast


SYSTEM = [
    {"role": "system", "content": "{advice}"},
    {"role": "user", "content": "{context}\n\nQuestion: {question}"},
]
PLACES: dict[str, tuple[Messages, Messages, Messages]] = {
    "user": (
        [{"role": "user", "content": QUESTION}],
        [{"role": "user", "content": "Text: Anna met Bo.\n\nQuestion: Be fair. Who?\nAnswer:"}],
        [{"role": "user", "content": "Text: Anna met Bo.\n\nQuestion: Who?\nAnswer:"}],
    ),
    "context": (
        [{"role": "user", "content": "{context} {advice}\n{question} "}],
        [{"role": "user", "content": "Anna met Bo. Be fair.\nWho?"}],
        [{"role": "user", "content": "Anna met Bo.\nWho?"}],
    ),
    "system": (
        SYSTEM,
        [
            {"role": "system", "content": "Be fair."},
            {"role": "user", "content": "Anna met Bo.\n\nQuestion: Who?"},
        ],
        [{"role": "user", "content": "Anna met Bo.\n\nQuestion: Who?"}],
    ),
}
"""Messages with slots, and what they are with advice and without."""


@pytest.mark.parametrize("place", PLACES)
def test_messages_filled_in(place: str) -> None:
    messages, advised, unadvised = PLACES[place]
    for advice, wanted in (("Be fair.", advised), ("", unadvised)):
        found = fill(messages, "key", [], advice=advice, context="Anna met Bo.", question="Who?")
        assert found.messages == wanted
        text, context_at = prompt_text(found, None, chat=False)
        assert text == "\n\n".join(message["content"] for message in wanted)
        assert text[context_at:].startswith("Anna met Bo.")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("template", ["system", "none", "space"])
def test_a_row_is_the_conversation_in_the_chat_template(template: str, place: str) -> None:
    if (template, place) == ("none", "system"):
        pytest.skip("the template has no system message")
    tokenizer, (messages, turns, _) = chat_tokenizer(template), PLACES[place]
    example = QAExample("1", "Anna met Bo.", "Who?", (Span(9, 11, "Bo"),), advice="Be fair.")
    encoding = Encoding(prompts=Prompts(prompt=messages)).resolved("llama", tokenizer)
    assert encoding.prompts.chat == "always"
    batch = QASet([example], tokenizer, encoding)[[0]]

    def ids(turns: Messages, **options: Any) -> list[int]:
        return tokenizer.apply_chat_template(turns, return_dict=False, **TEMPLATE_OPTIONS, **options)

    row_T = batch.inputs["input_ids"][0][batch.inputs["attention_mask"][0] != 0].tolist()
    assert row_T[: int(batch.cls_B) + 1] == ids(turns, add_generation_prompt=True)
    answered = ids([*turns, {"role": "assistant", "content": "Bo"}])
    if template == "space":  # the white space before its end token belongs to no answer
        del answered[-2]
    assert row_T == answered[: len(row_T)]
    assert tokenizer.decode(row_T[int(batch.start_B) :]).strip() == "Bo<|end|>"
    assert tokenizer.decode(batch.inputs["input_ids"][0][batch.context_BT[0]]) == "Anna met Bo."


def test_chat_that_cannot_be_is_refused() -> None:
    words, gemma = build_tokenizer("llama", vocabulary()), chat_tokenizer("none")
    assert Encoding().resolved("llama", words).prompts.chat == "never"
    assert Encoding(prompts=Prompts(chat="never")).resolved("llama", gemma).prompts.chat == "never"
    always = Encoding(prompts=Prompts(chat="always"))
    with pytest.raises(DataError, match=r"prompts\.chat: always, but the tokenizer has no chat template"):
        always.resolved("llama", words)
    with pytest.raises(DataError, match=r"encoding\.prompts: are for decoders, and bert is an encoder"):
        always.resolved("bert", words)
    example = QAExample("1", "Anna met Bo.", "Who?", advice="Be fair.")
    for template, messages, said in (
        ("none", SYSTEM, "the tokenizer's chat template fails: none; set"),
        ("loud", [{"role": "user", "content": QUESTION}], "1: the chat template changes the text"),
    ):
        tokenizer = chat_tokenizer(template)
        encoding = Encoding(prompts=Prompts(prompt=messages)).resolved("llama", tokenizer)
        with pytest.raises(DataError, match=said):
            QASet([example], tokenizer, encoding)
