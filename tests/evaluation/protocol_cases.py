"""A small run of every protocol (protocol_cases.yaml): tiny models of random weights."""

import json
import shlex
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from interventune.data_modules.batching.candidates import ChoiceEncoding
from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.stories.questions import vocabulary
from interventune.metrics.consistency import DOMAINS, VARIANTS
from interventune.models.backbones import Backbone
from interventune.models.heads.answers import RationaleModel
from interventune.models.heads.span import ChoiceModel
from interventune.models.loading import start
from interventune.storage.documents import load_yaml
from tests.evaluation.bbq_files import save_bbq
from tests.evaluation.checkpoints import GROUPS, save_folder, save_groups, save_model
from tests.models.tiny import loud

PLACES = ("attic", "cellar", "bank")


@dataclass(frozen=True)
class Case:
    """A protocol's contract on a small run; protocol_cases.yaml describes the fields."""

    protocol: str
    model: str
    words: str
    n: dict[str, int]
    examples: int
    long: bool = False

    def command(self, room: Path, output: Path, model: str = "") -> list[str]:
        """The arguments of `interventune evaluate`, of the case's model or another one."""
        kind, colon, name = (model or self.model).rpartition(":")
        return self.asking(room, output, f"{kind}{colon}{room / name}")

    def asking(self, room: Path, output: Path, *models: str) -> list[str]:
        """The same, of these models."""
        words = [word.replace("{room}", str(room)) for word in shlex.split(self.words)]
        flags = [part for word in words for part in (models if word == "{}" else [word])]
        return [self.protocol, *flags, "--device", "cpu", "--output", str(output)]


CASES = load_yaml(Path(__file__).with_suffix(".yaml"), list[Case])
CASE_OF = {case.protocol: case for case in CASES}


class Forwards:
    """Counts calls of modules; number `stop` raises an error, by default that of Ctrl-C."""

    def __init__(self, patch: pytest.MonkeyPatch, stop: int = 0, error: Any = None) -> None:
        self.count = 0
        real = torch.nn.Module.__call__

        def counting(module: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == stop:
                raise error or KeyboardInterrupt
            return real(module, *arguments, **named)

        patch.setattr(torch.nn.Module, "__call__", counting)


def make_room(room: Path) -> None:
    """All models and files that the cases name, and two files that are no model."""
    save_folder(room / "qa", seed=4)
    config = {"vocab_size": 512, "hidden_size": 32}
    backbone = Backbone(architecture="bert", checkpoint="random", config=config)
    torch.manual_seed(5)
    save_model(room / "typed.ckpt", start(backbone, RationaleModel), Encoding())
    torch.manual_seed(5)
    # So loud that rounding does not change the order of its confidences.
    save_model(room / "choice.ckpt", loud(start(backbone, ChoiceModel), 2.2), ChoiceEncoding())
    save_causal(room / "causal")
    save_bbq(room)
    save_groups(room / "groups.json", GROUPS)
    (room / "broken.ckpt").write_bytes(b"PK\x03\x04 and no more")
    colours = dict(zip(VARIANTS, ("red", "blue", "black", "white", "green"), strict=True))
    written = [
        {"domain": domain, "specification": variant, "group": group}
        | {"prompt": place, "text": f" {colour} {place} {group}"}
        for domain, (variant, colour) in product(DOMAINS, colours.items())
        for group in ((0, 1) if variant == "nonsense" else (None,))
        for place in PLACES
    ]
    write_rows(room / "written.jsonl", written)
    for name, words in (("adversarial", "red blue black"), ("neutral", "white green brown")):
        texts = [f"anna came to the {word} attic" for word in words.split()]
        write_rows(room / f"{name}.jsonl", [{"prompt": {"text": text}} for text in texts])
    pair = {"question": "is anna in the attic ?", "history": [], "edit": "scope", "dataset": "coqa"}
    pair |= {"answer_org": "yes", "answer_mod": "no"}
    stories = [(f"anna is in the {place} .", f"anna is not in the {place} .") for place in PLACES]
    sides = [{"id": f"p{i}", "story_org": x, "story_mod": y} for i, (x, y) in enumerate(stories)]
    write_rows(room / "pairs.jsonl", [pair | both for both in sides])


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def save_causal(folder: Path, *, positions: int = 256, spread: float = 0, more: str = "") -> None:
    """A causal model that knows the stories' words; with a `spread`, prompts matter to it."""
    tokenizer = build_tokenizer("gpt2", [*vocabulary(), "good", "bad", "0", "1", *more])
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": positions}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(6)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **ends, vocab_size=len(tokenizer)))
    with torch.no_grad():
        for parameter in model.parameters():
            if spread and parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * spread)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
