"""Tokenizers; rows of decoders, with what follows their prompts; pairs of prompt and choice."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedTokenizerFast

from interventune.data_modules.batching import candidates
from interventune.data_modules.batching.candidates import ChoiceEncoding, ChoiceSet
from interventune.data_modules.batching.sets import QASet
from interventune.data_modules.encoding import tokenizers
from interventune.data_modules.encoding.prompts import TEMPLATE_OPTIONS, Prompt, encode_prompts
from interventune.data_modules.encoding.tokenizers import build_tokenizer, load_tokenizer
from interventune.data_modules.encoding.windows import CHOICE, QUESTION, Encoding, Messages, Prompts
from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample, Span, Turn
from interventune.data_modules.stories import groups as story_groups
from interventune.data_modules.stories.questions import vocabulary
from interventune.storage.documents import DataError
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

TEXT = ["text", "question", "answer", "anna", "sits", "who"]
ARCHITECTURES = {"wordpiece": "bert", "bytes": "roberta", "xlnet_pieces": "xlnet"}
TWO = ChoiceQuestion("two", "who was rude?", ("the tolin met a", "a kessar"), 1)
EMPTY = ChoiceQuestion("empty", "", ("a tolin", "a"), 0)
LONG = ChoiceQuestion("long", "who was " * 30, ("met a " * 20, "a"), 0)


@pytest.mark.parametrize(("side", "offers_unknown"), [("left", False), ("right", True)])
def test_subjects_follow_the_prompt_in_the_groups_order(side: str, offers_unknown: bool) -> None:
    words = build_tokenizer("llama", [*vocabulary(), "reply", "with", "or", "unknown"])
    words.padding_side = side
    groups = list(islice(story_groups.groups("train"), 3))
    content = CHOICE.replace("{options}", "{options} or unknown") if offers_unknown else CHOICE
    encoding = Encoding(prompts=Prompts(choice_prompt=said(content)))
    batch = candidates.GroupSet(groups, words, encoding.resolved("llama"))[[2, 0, 1]]
    assert batch.candidate_BVSE.shape == (3, 4, 2 + offers_unknown, 2)
    for b, i in enumerate((2, 0, 1)):
        for v, variant in enumerate(groups[i].variants):
            ids_T = batch.inputs["input_ids"][4 * b + v]
            places = batch.candidate_BVSE[b, v].tolist()
            answers = [words.decode(ids_T[start : end + 1]) for start, end in places]
            assert answers == [*groups[i].subjects, "unknown"][: len(answers)]
            context = words.decode(words(variant.context, add_special_tokens=False)["input_ids"])
            assert words.decode(ids_T[batch.context_BT[4 * b + v]]) == context
            in_context = sorted(variant.candidates, key=lambda span: span.start)
            offered = " or ".join(span.text.lower() for span in in_context)
            assert f"reply with {offered}" in words.decode(ids_T)


@pytest.mark.parametrize("form", ["$A", "$A </s>", "<s> $A </s>"])
def test_an_answer_follows_its_prompt_and_ends_with_an_end_token(form: str) -> None:
    """Whatever the tokenizer puts around every text."""
    words = build_tokenizer("gpt2", [*TEXT, "unknown", "yes"])
    special = [(token, words.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    around = processors.TemplateProcessing(form, special_tokens=special)
    words.backend_tokenizer.post_processor = around
    examples = [
        QAExample("1", "Anna sits", "Who?", (Span(0, 4, "Anna"),), references=("a visitor",)),
        QAExample("2", "Anna sits", "Who?", references=("a visitor",), answer_type="unknown"),
        QAExample("3", "Anna sits", "Who?", answer_type="yes", history=(Turn("Anna?", "Yes"),)),
    ]
    batch = QASet(examples, words, Encoding().resolved("gpt2"))[[0, 1, 2]]
    rows = zip(batch.inputs["input_ids"], batch.start_B, batch.end_B, strict=True)
    written = [words.decode(ids_T[start : end + 1]) for ids_T, start, end in rows]
    assert written == ["anna </s>", "unknown </s>", "yes </s>"]
    assert batch.answer_type_B.tolist() == [3, 2, 0]
    first_T, _, last_T = batch.inputs["input_ids"]
    assert "answer <unk> yes question" in words.decode(last_T)
    text = words.decode(first_T[: int(batch.end_B[0]) + 1])
    assert text.endswith("answer <unk> anna </s>")
    assert (text.count("</s>"), text.startswith("<s>")) == (1, form.startswith("<s>"))
    assert words.decode(first_T[batch.context_BT[0]]) == "anna sits"


def test_tokens_behind_the_prompt_are_those_of_one_text() -> None:
    """Unless the prompt's own would change with it: 'a' and ' b' are 'a b' here."""
    pieces = ["[U]", "x", "a", " ", "b", " b", "a b"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, [(" ", "b"), ("a", " b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("x", "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[U]")
    asked = [("x", "x", ("b", "a")), ("xa", "x", ("b",)), ("x b", "x b", ())]
    prompts = [Prompt(said(text), shown, 1, behind, text) for text, shown, behind in asked]
    one, two, three = encode_prompts(prompts, fast, Encoding(max_length=10))
    assert [pieces[i] for i in one.input_ids_T] == ["x", " b", " ", "a"]
    assert one.spans == ((1, 1), (2, 3))
    assert [pieces[i] for i in two.input_ids_T] == ["x", "a", " b"]
    np.testing.assert_array_equal(one.offsets_TE[:, 0], [0, -1, -1, -1])
    np.testing.assert_array_equal(three.offsets_TE, [[-1, -1], [0, 1]])


BO = QAExample("1", "Anna met Bo.", "Who?", (Span(9, 11, "Bo"),), advice="Be fair.")
TEMPLATES = {
    "chat": "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    # As Gemma's: no system message, texts are stripped, a word of its own for the assistant.
    "plain": "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ "
    "raise_exception('none') }}{% endif %}{{ '<|' + m.role + '|>\\n' + m.content | trim "
    "+ '<|end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' "
    "}}{% endif %}",
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
    names: Any = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    names["additional_special_tokens"] = special
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    begin: Any = {"special_tokens": [("<s>", fast.bos_token_id)]}
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A", **begin)
    fast.chat_template = TEMPLATES[template]
    return fast


def said(user: str, system: str = "") -> Messages:
    system_says = [{"role": "system", "content": system}] if system else []
    return [*system_says, {"role": "user", "content": user}]


ASKED = "Anna met Bo.\n\nQuestion: Who?"
SYSTEM = said("{context}\n\nQuestion: {question}", "{advice}")
FAIR = said("Text: Anna met Bo.\n\nQuestion: Be fair. Who?\nAnswer:")
AFTER = said("{context} {advice}\n{question} ")
PLACES = [
    (said(QUESTION), FAIR, said(f"Text: {ASKED}\nAnswer:")),
    (AFTER, said("Anna met Bo. Be fair.\nWho?"), said("Anna met Bo.\nWho?")),
    (SYSTEM, said(ASKED, "Be fair."), said(ASKED)),
]
"""Messages with slots, and what they are with advice and without."""


@pytest.mark.parametrize("case", ["chat 1", "chat 2", "plain 0", "plain 1", "space 0", "space 2"])
def test_a_row_is_the_conversation_in_the_chat_template(case: str) -> None:
    template, place = case[:-2], int(case[-1])
    tokenizer, (messages, *turns_of) = chat_tokenizer(template), PLACES[place]
    encoding = Encoding(prompts=Prompts(prompt=messages)).resolved("llama")

    def ids(turns: Messages, **options: Any) -> list[int]:
        options |= TEMPLATE_OPTIONS
        return tokenizer.apply_chat_template(turns, return_dict=False, **options)

    for example, turns in zip((BO, replace(BO, advice="")), turns_of, strict=True):
        batch = QASet([example], tokenizer, encoding)[[0]]
        row_T = batch.inputs["input_ids"][0][batch.inputs["attention_mask"][0] != 0].tolist()
        assert row_T[: int(batch.cls_B) + 1] == ids(turns, add_generation_prompt=True)
        answered = ids([*turns, {"role": "assistant", "content": "Bo"}])
        if template == "space":  # the white space before its end token belongs to no answer
            del answered[-2]
        assert row_T == answered[: len(row_T)]
        assert tokenizer.decode(row_T[int(batch.start_B) :]).strip() == "Bo<|end|>"
        assert tokenizer.decode(batch.inputs["input_ids"][0][batch.context_BT[0]]) == "Anna met Bo."


@pytest.mark.parametrize(("chat", "prompt"), [("auto", "<s><|user|>Who?"), ("never", "<s>Who?")])
def test_choices_stand_behind_a_prompt_in_the_chat_template_or_not(chat: Any, prompt: str) -> None:
    tokenizer, question = chat_tokenizer("chat"), ChoiceQuestion("1", "Who?", ("Bo", "Anna"), 0)
    ((row,),) = candidates.encode_choices([question], tokenizer, ChoiceEncoding(chat=chat), "llama")
    assert tokenizer.decode(row.input_ids_T).startswith(prompt)
    behind = [tokenizer.decode(row.input_ids_T[start : end + 1]) for start, end in row.spans]
    assert [text.strip() for text in behind] == ["Bo", "Anna"]


def test_chat_that_cannot_be_is_refused() -> None:
    for content in ("{question} {advice}", "{context} {advice} {question} {options}"):
        with pytest.raises(DataError, match=r"encoding\.prompts\.prompt: needs each of"):
            Prompts(prompt=said(content))
    words, never = (build_tokenizer("llama", vocabulary()), Encoding(prompts=Prompts(chat="never")))
    with pytest.raises(DataError, match=r"encoding\.prompts: are for decoders, and bert is"):
        never.resolved("bert")
    with pytest.raises(DataError, match=r"1: has .* tokens, more than"):
        QASet([BO], words, Encoding(max_length=9).resolved("llama"))
    for template, messages in (("plain", SYSTEM), ("loud", said(QUESTION))):
        tokenizer = chat_tokenizer(template)
        encoding = Encoding(prompts=Prompts(prompt=messages)).resolved("llama")
        with pytest.raises(DataError, match=r"the chat template|chat template fails"):
            QASet([BO], tokenizer, encoding)


def choice_set(kind: str, *examples: ChoiceQuestion, **encoding: Any) -> ChoiceSet:
    return ChoiceSet(examples, tokenizer(kind), ChoiceEncoding(**encoding), ARCHITECTURES[kind])


def unpadded(data: ChoiceSet, *index: int) -> list[list[list[int]]]:
    """Token ids of every row, by the attention mask."""
    inputs = data[index].inputs
    pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [[ids[mask == 1].tolist() for ids, mask in zip(*pair, strict=True)] for pair in pairs]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_rows_are_the_tokenizers_pairs(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """RoBERTa's with a space before each text; of a longer pair the longer text is cut."""
    data, space = choice_set(kind, TWO, EMPTY, LONG, max_length=24), " " if kind == "bytes" else ""
    for example, rows in zip((TWO, EMPTY, LONG), unpadded(data, 0, 1, 2), strict=True):
        for choice, row in zip(example.choices, rows, strict=True):
            pair = example.prompt and space + example.prompt, space + choice
            cut = tokenizer(kind)(*pair, truncation="longest_first", max_length=24)
            assert row == cut["input_ids"]
    assert " of 6 texts are too long for the model" in caplog.text


def test_spaces_of_roberta_are_not_doubled() -> None:
    spaced = ChoiceQuestion("s", " who was rude?", (" the tolin met a", " a kessar"), 1)
    assert unpadded(choice_set("bytes", TWO), 0) == unpadded(choice_set("bytes", spaced), 0)


def test_parity_pads_every_row_to_the_longest_allowed() -> None:
    dynamic = choice_set("bytes", TWO, EMPTY)
    parity = choice_set("bytes", TWO, EMPTY, padding="parity")
    assert parity[[1]].inputs["input_ids"].shape == (1, 2, 128)
    assert unpadded(parity, 0, 1) == unpadded(dynamic, 0, 1)


def encoded(tok: Any) -> dict[str, Any]:
    texts = "Who was rude?", "A Velan baker met a Kessar, and it isn't far. tol"
    return dict(tok(*texts, return_offsets_mapping=True, return_token_type_ids=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_survives_being_stored(kind: str, tmp_path: Path) -> None:
    tok = tokenizer(kind)
    files = tokenizers.tokenizer_files(tok)
    tok.save_pretrained(tmp_path)
    torch.save({"interventune": {"tokenizer": files}}, tmp_path / "last.ckpt")
    for source in (files, str(tmp_path), str(tmp_path / "last.ckpt")):
        again = load_tokenizer(source)
        assert encoded(again) == encoded(tok)
        for name in ("padding_side", "pad_token_id", "cls_token_id"):
            assert getattr(again, name) == getattr(tok, name)
        assert tokenizers.tokenizer_files(again)["tokenizer.json"] == files["tokenizer.json"]


def test_stored_files_do_not_depend_on_what_was_tokenised_last() -> None:
    """The backend remembers the truncation of its last call and would store it."""
    tok = build_tokenizer("bert", ["who"])
    before = tokenizers.tokenizer_files(tok)
    tok("who " * 90, "who " * 90, truncation="only_second", max_length=200, stride=7, padding=True)
    assert tokenizers.tokenizer_files(tok) == before


@pytest.mark.parametrize("model_type", ["bert", "deberta-v2"])
def test_a_model_without_a_tokenizer_is_refused(model_type: str, tmp_path: Path) -> None:
    """transformers 5 would silently build a tokenizer that knows no word."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(DataError, match="has no vocabulary"):
        load_tokenizer(str(tmp_path))


def test_what_is_no_tokenizer_is_named_in_one_line(tmp_path: Path) -> None:
    BertConfig().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    for source in (str(tmp_path), "/no/such/folder", "no-such-user/no-such-model", "nothing.ckpt"):
        with pytest.raises(DataError, match=rf"^.*{source}.*\Z"):
            load_tokenizer(source)


def test_code_of_a_folder_is_never_run_nor_asked_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')")
    classes: Any = {"auto_map": {"AutoTokenizer": [None, "own.Own"], "AutoConfig": "own.Config"}}
    classes |= {"model_type": "own", "tokenizer_class": "Own"}
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(json.dumps(classes))
    with pytest.raises(DataError, match=str(tmp_path)):
        load_tokenizer(str(tmp_path))
