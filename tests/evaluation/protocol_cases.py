"""A small run of every protocol: tiny models of random weights, a few examples, and how
many count.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from interventune.data_modules.batching.choice_set import ChoiceEncoding
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.stories.questions import vocabulary
from interventune.metrics.consistency import DOMAINS, VARIANTS
from interventune.models.backbones import Backbone
from interventune.models.heads.answers import RationaleModel
from interventune.models.heads.choice import ChoiceModel
from interventune.models.loading import start
from tests.evaluation.bbq_files import save_bbq
from tests.evaluation.checkpoints import GROUPS, save_folder, save_groups, save_model

Cell = tuple[str, tuple[tuple[str, str], ...]]
ADVICE = Counter(group.advice_class for group in GROUPS)


@dataclass(frozen=True)
class Case:
    """A protocol's contract on a small run.

    Args:
        protocol: its name on the command line.
        model: the file or folder in the room that is asked, as the command line names it.
        words: what else the command line says; `{}` stands for the model, `{room}` for the room.
        n: cells of results.csv and their numbers of examples.
        examples: rows of examples.jsonl.
        long: whether it keeps finished work, and goes on from it.
    """

    protocol: str
    model: str
    words: str
    n: dict[Cell, int] = field(default_factory=dict)
    examples: int = 0
    long: bool = False

    def command(self, room: Path, output: Path, model: str = "") -> list[str]:
        """The arguments of `interventune evaluate`; another `model` takes the place of the case's
        own.
        """
        kind, colon, name = (model or self.model).rpartition(":")
        return self.asking(room, output, f"{kind}{colon}{room / name}")

    def asking(self, room: Path, output: Path, *models: str) -> list[str]:
        """The same, of these models."""
        words = [word.replace("{room}", str(room)) for word in shlex.split(self.words)]
        flags = [part for word in words for part in (models if word == "{}" else [word])]
        return [self.protocol, *flags, "--device", "cpu", "--output", str(output)]


def cell(measure: str, **place: str) -> Cell:
    """A cell of results.csv, as a key."""
    return measure, tuple(place.items())


UPPERCASE = {"task": "stories:uppercase", "intervention": "none"}
RANDOM_PARALYSIS = {"probe": "choice_paralysis", "sampling": "random"}
PLACES = ("attic", "cellar", "bank")
WRITTEN = 3 * (1 + 1 + 1 + 2 + 1)
"""Continuations of three prompts: two groups of nonsense, and one of each other specification."""

CASES: tuple[Case, ...] = (
    Case(
        "bias",
        "qa",
        "--checkpoint {} --data {room}/groups.json",
        {
            cell("mu", **{"checkpoint": "qa", "data": "groups", "class": name}): n
            for name, n in {**ADVICE, "none": len(GROUPS)}.items()
        },
        2 * len(GROUPS),  # with and without the advice
    ),
    Case(
        "faithfulness",
        "typed.ckpt",
        "--checkpoint {} --data stories:conversation_dev --limit 6",
        {cell("em", checkpoint="typed", variant=variant): 6 for variant in ("os", "ts", "ts_r")},
        3 * 6,
    ),
    Case(
        "shift",
        "qa",
        "--checkpoint {} --data stories:conversation_dev --limit 6",
        {
            cell("cosine", checkpoint="qa", variant=variant, embedding="cls", layer="last"): n
            for variant, n in {"ts": 4, "ts_r": 6}.items()  # from two, `ts` cuts nothing
        },
        2 * (4 + 6),
    ),
    Case(
        "negation",
        "typed.ckpt",
        "--checkpoint {} --pairs {room}/pairs.jsonl",
        {cell(measure, checkpoint="typed"): 3 for measure in ("org", "mod", "comb", "yes")},
        3,
    ),
    Case(
        "predicate-argument",
        "typed.ckpt",
        "--checkpoint {}",
        {
            cell("accuracy", checkpoint="typed", wording=wording): 520
            for wording in ("org", "mod", "new")
        },
        3 * 520,
    ),
    Case(
        "sensitivity",
        "typed.ckpt",
        "--checkpoint {}",
        {cell("difference", checkpoint="typed", layer="last"): 2 * 130},
        2 * 130,
    ),
    Case(
        "consistency-write",
        "hf:causal",
        "--checkpoint {} --method self --new-tokens 3 --beams 1 --nonsense-groups 2 "
        "--adversarial {room}/adversarial.jsonl --neutral {room}/neutral.jsonl",
        {
            cell("failed", checkpoint="causal", method="self 50", domain=domain): WRITTEN
            for domain in DOMAINS
        },
        2 * WRITTEN,
        long=True,
    ),
    Case(
        "consistency",
        "written.jsonl",
        "--continuations {} --scorer stories: --batch-size 4",
        {
            cell("average", checkpoint="written", method="given", domain=domain, variant=variant): n
            for domain, variant, n in (
                ("adversarial", "original", 3),
                ("neutral", "nonsense", 2 * 3),
            )
        },
        2 * WRITTEN,
        long=True,
    ),
    Case(
        "confusion",
        "choice.ckpt",
        "--checkpoint {} --input stories:choices_dev --limit 12 --trials 2 --choices 3 --sampling "
        "random",
        {
            cell("accuracy", checkpoint="choice", probe="original"): 12,
            cell("pseudo_accuracy", checkpoint="choice", probe="no_question"): 12,
            cell("pseudo_accuracy", checkpoint="choice", probe="no_right_answer"): 2 * 12,
            cell("accuracy", checkpoint="choice", **RANDOM_PARALYSIS, n_choices="3"): 2 * 12,
        },
        12 + 12 + 2 * (12 + 12) + 2 * 12,
        long=True,
    ),
    Case(
        "bbq",
        "choice.ckpt",
        "--checkpoint {} --data {room}/bbq.jsonl --metadata {room}/metadata.csv",
        {cell("accuracy", checkpoint="choice", advice="none", condition="ambig"): 4},
        8,
    ),
    Case(
        "feature-bias",
        "hf:causal",
        "--checkpoint {} --task stories:uppercase --shots 2 --seeds 2 --limit 3",
        {
            cell(measure, checkpoint="causal", **UPPERCASE): 2 * 2 * 3
            for measure in ("h1", "agreement")
        },
        2 * 4 * 3,
        long=True,
    ),
    Case(
        "ask",
        "qa",
        "--checkpoint {} --context 'anna is in the attic .' --question 'where is anna ?' "
        "--candidate attic",
        {cell("score", asked="without advice", candidate="attic"): 1},
        1,
    ),
)


class Forwards:
    """Counts calls of modules; the one with the number `stop` raises an error, unless
    given Ctrl-C.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, stop: int = 0, error: BaseException | None = None
    ) -> None:
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
    backbone = Backbone(
        architecture="bert", checkpoint="random", config={"vocab_size": 512, "hidden_size": 32}
    )
    torch.manual_seed(5)
    save_model(room / "typed.ckpt", start(backbone, RationaleModel), Encoding())
    torch.manual_seed(5)
    chooser = start(backbone, ChoiceModel)
    with torch.no_grad():  # so far that rounding does not change the order of its confidences
        for parameter in chooser.parameters():
            parameter.mul_(2.2).add_(0.05 * torch.randn_like(parameter))
    save_model(room / "choice.ckpt", chooser, ChoiceEncoding())
    save_causal(room / "causal")
    save_bbq(room)
    colours = dict(zip(VARIANTS, ("red", "blue", "black", "white", "green"), strict=True))
    written = [
        {"domain": domain, "specification": variant, "group": group}
        | {"prompt": place, "text": f" {colour} {place} {group}"}
        for domain, (variant, colour) in product(DOMAINS, colours.items())
        for group in ((0, 1) if variant == "nonsense" else (None,))
        for place in PLACES
    ]
    write_rows(room / "written.jsonl", written)
    save_groups(room / "groups.json", GROUPS)
    for name, words in (
        ("adversarial", ("red", "blue", "black")),
        ("neutral", ("white", "green", "brown")),
    ):
        rows = [{"prompt": {"text": f"anna came to the {word} attic"}} for word in words]
        write_rows(room / f"{name}.jsonl", rows)
    pair = {"question": "is anna in the attic ?", "history": [], "edit": "scope", "dataset": "coqa"}
    pair |= {"answer_org": "yes", "answer_mod": "no"}
    stories = [(f"anna is in the {place} .", f"anna is not in the {place} .") for place in PLACES]
    sides = [
        {"id": f"p{i}", "story_org": org, "story_mod": mod} for i, (org, mod) in enumerate(stories)
    ]
    write_rows(room / "pairs.jsonl", [pair | both for both in sides])
    (room / "broken.ckpt").write_bytes(b"PK\x03\x04 and no more")


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def save_causal(folder: Path, *, positions: int = 256, spread: float = 0) -> None:
    """A causal language model of random weights that knows the words of the embedded stories; with
    a `spread` its weights are so far apart that prompts matter.
    """
    words = dict.fromkeys(["<pad>", "</s>", "<unk>", "<s>", *vocabulary(), "good", "bad", "0", "1"])
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {
        "vocab_size": len(words),
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": positions,
    }
    torch.manual_seed(6)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=3, eos_token_id=1))
    with torch.no_grad():
        for parameter in model.parameters():
            if spread and parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * spread)
    model.save_pretrained(folder)
    names = {"eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
