"""Stories, and the hidden states that transformers' own model gives, one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from data_modules.encoding.windows import Encoding, full_query
from data_modules.interventions.deletion import perturb
from data_modules.schema import QAExample, Variant
from data_modules.stories.questions import qa_examples
from models.backbones import Backbone
from models.checkpoint import heads_class, start
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, save_model

DATA = "stories:conversation_dev"
LIMIT = 12
STORIES: list[QAExample] = list(islice(qa_examples("conversation_dev"), LIMIT))


def made(variant: Variant, stories: list[QAExample] = STORIES) -> list[QAExample]:
    results = [perturb(story, variant) for story in stories]
    return [result for result in results if isinstance(result, QAExample)]


def shift(output: Path, *arguments: str | Path, data: Sequence[str | Path] = (DATA,)) -> Cells:
    return evaluate(output, "shift", "--data", *data, "--limit", str(LIMIT), *arguments)


class Naive:
    """Hidden states of one unpadded text."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForQuestionAnswering.from_pretrained(folder).eval().base_model
        self.encoding = Encoding().resolved(architecture)

    @torch.no_grad()
    def states(self, example: QAExample) -> tuple[Tensor, dict[tuple[int, int], Tensor]]:
        """Of CLS, (L, D), and of the context's tokens by their characters."""
        query = full_query(example, self.encoding, self.tokenizer)
        pair = (query, example.context)
        encoded = self.tokenizer(*pair, return_tensors="pt", return_offsets_mapping=True)
        inputs = {name: encoded[name] for name in self.tokenizer.model_input_names}
        hidden_LTD = torch.stack(self.model(**inputs, output_hidden_states=True).hidden_states)[:, 0].double()
        cls = encoded["input_ids"][0].tolist().index(self.tokenizer.cls_token_id)
        offsets = encoded["offset_mapping"][0].tolist()
        context = [t for t, side in enumerate(encoded.sequence_ids(0)) if side == 1]
        return hidden_LTD[:, cls], {(offsets[t][0], offsets[t][1]): hidden_LTD[:, t] for t in context}


def cosines(one_LD: Tensor, other_LD: Tensor) -> list[float]:
    return torch.nn.functional.cosine_similarity(one_LD, other_LD, dim=-1).tolist()


def built(path: Path, **config: Any) -> Path:
    """A checkpoint of ours with an unusual model inside."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 320} | config
    backbone = Backbone(architecture="bert", checkpoint="random", config=sizes)
    torch.manual_seed(0)
    return save_model(path, start(backbone, heads_class("span")), Encoding())
