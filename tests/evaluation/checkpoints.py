"""Tiny models with their tokenizers, small data, and what transformers itself says about them."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from interventune.data_modules.encoding import tokenizers
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.schema.questions import QAExample, write_records
from interventune.data_modules.stories.groups import groups
from interventune.data_modules.stories.questions import qa_examples, vocabulary
from interventune.models.adapters import own_weights
from interventune.models.backbones import Backbone, EncoderModel
from interventune.models.checkpoint import KEY, describe
from interventune.models.heads.span import SpanModel
from interventune.models.loading import load_pretrained, start
from tests.models.tiny import loud, to_pretrained

GROUPS: list[Group] = list(islice(groups("heldout"), 13))
QUESTIONS: list[QAExample] = list(islice(qa_examples("dev"), 11))

SIZES = {"hidden_size": 32, "intermediate_size": 64}
CONFIG_OF: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
    "xlnet": {"d_model": 32, "d_inner": 64, "pad_token_id": 5},
    "llama": {**SIZES, "num_key_value_heads": 2},
}


def tiny_backbone(architecture: Any, **config: Any) -> Backbone:
    config = {"vocab_size": 320, **CONFIG_OF[architecture], **config}
    return Backbone(architecture=architecture, checkpoint="random", config=config)


def tiny_model(architecture: str, seed: int = 0, **config: Any) -> SpanModel:
    torch.manual_seed(seed)
    model: SpanModel = loud(start(tiny_backbone(architecture, **config), SpanModel), 3)
    return model


def save_folder(folder: Path, architecture: str = "bert", seed: int = 0, **config: Any) -> Path:
    """A Hugging Face folder: weights, configuration, tokenizer."""
    to_pretrained(tiny_model(architecture, seed, **config)).save_pretrained(folder)
    tokenizers.build_tokenizer(architecture, vocabulary()).save_pretrained(folder)  # type: ignore[arg-type]
    return folder


def save_llama(folder: Path, chat: str = "", **config: Any) -> Path:
    """The same of a decoder, as it is initialised."""
    torch.manual_seed(0)
    load_pretrained(tiny_backbone("llama", **config)).save_pretrained(folder)
    tokenizer = tokenizers.load_tokenizer("stories", "llama")
    tokenizer.chat_template = chat or tokenizer.chat_template
    tokenizer.save_pretrained(folder)
    return folder


def save_ckpt(path: Path, architecture: str = "bert", seed: int = 0, **encoding: Any) -> Path:
    """The same as a checkpoint of ours."""
    return save_model(path, tiny_model(architecture, seed), Encoding(**encoding))


def save_model(path: Path, model: EncoderModel, encoding: Any, tokenizer: Any = None) -> Path:
    """A model with any heads, as training saves it."""
    tokenizer = tokenizer or tokenizers.build_tokenizer(model.architecture, vocabulary())
    weights = {f"model.{key}": value for key, value in model.state_dict().items()}
    content = {"state_dict": own_weights(model, weights), "global_step": 1}
    about = describe(model, tokenizers.tokenizer_files(tokenizer), asdict(encoding))
    torch.save({**content, KEY: about}, path)
    return path


def save_groups(path: Path, records: Sequence[Group] = GROUPS) -> Path:
    write_records(records, path)
    return path


def save_questions(path: Path) -> Path:
    write_records(QUESTIONS, path)
    return path


class Naive:
    """transformers' own model and tokenizer, one text at a time, without padding or windows."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
        self.logits = cache(self._logits)

    @torch.no_grad()
    def output(self, context: str, query: str) -> tuple[Any, Any]:
        encoded = self.tokenizer(query, context, return_tensors="pt", return_offsets_mapping=True)
        inputs = {name: encoded[name] for name in self.tokenizer.model_input_names}
        return encoded, self.model(**inputs, output_hidden_states=True)

    def _logits(self, context: str, query: str) -> tuple[Any, Tensor, Tensor]:
        encoded, output = self.output(context, query)
        return encoded, output.start_logits[0].double(), output.end_logits[0].double()

    def states(self, context: str, query: str) -> tuple[Tensor, dict[tuple[int, int], Tensor]]:
        """States of CLS, (L, D), and of the context's tokens by their first and last characters."""
        encoded, output = self.output(context, query)
        hidden_LTD = torch.stack(output.hidden_states)[:, 0].double()
        cls = encoded["input_ids"][0].tolist().index(self.tokenizer.cls_token_id)
        places = zip(encoded.sequence_ids(0), encoded["offset_mapping"][0].tolist(), strict=True)
        inside = {tuple(at): hidden_LTD[:, t] for t, (side, at) in enumerate(places) if side == 1}
        return hidden_LTD[:, cls], inside

    def score(self, context: str, query: str, start: int, end: int) -> tuple[float, float]:
        """p_start and p_end of the characters start .. end - 1."""
        encoded, start_T, end_T = self.logits(context, query)
        first = encoded.char_to_token(0, start, sequence_index=1)
        last = encoded.char_to_token(0, end - 1, sequence_index=1)
        return float(start_T.softmax(-1)[first]), float(end_T.softmax(-1)[last])

    def answer(self, context: str, query: str, longest: int = 30) -> str:
        encoded, start_T, end_T = self.logits(context, query)
        inside = [t for t, side in enumerate(encoded.sequence_ids(0)) if side == 1]
        spans = [(i, j) for i in inside for j in inside if i <= j < i + longest]
        i, j = max(spans, key=lambda at: float(start_T[at[0]] + end_T[at[1]]))
        offsets = encoded["offset_mapping"][0]
        return context[int(offsets[i, 0]) : int(offsets[j, 1])]
