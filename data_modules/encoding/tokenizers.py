"""Tokenizers from the Hub, a folder, the files inside a checkpoint, or the embedded words."""

import json
import logging
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interventune.storage.documents import (
    DataError,
    Values,
    as_data_error,
    own_yaml,
    read_archive,
    text_digest,
)

from .windows import DECODERS

OF_THIS_COPY = ("is_local", "local_files_only", "name_or_path", "transformers_version")
"""Settings of a tokenizer's files that say where they come from."""

LAYOUTS = own_yaml(__file__, dict[str, Values])
"""By architecture, the format of a text and of a pair, special tokens and the side of padding."""


def load_tokenizer(source: str | dict[str, str], architecture: str = "") -> Any:
    """Load a fast tokenizer of transformers; code from a folder or the Hub is never run.

    Args:
        source: a Hub name, a folder, this project's `.ckpt`, `stories` (which needs an
            architecture), or tokenizer files given as text by name.
        architecture: decides the side of padding.

    Raises:
        DataError: nothing usable is found, or the tokenizer is not fast (offsets are needed).
    """
    if source == "stories":
        from interventune.data_modules.stories.questions import vocabulary

        return build_tokenizer(architecture, vocabulary())
    where = source if isinstance(source, str) else "the checkpoint"
    if where.endswith(".ckpt"):
        content = read_archive(where, mmap=True)  # memory-mapped, so that the weights are not read
        with as_data_error(f"{where}: no tokenizer in this checkpoint"):
            source = dict(content["interventune"]["tokenizer"])
    from transformers import AutoTokenizer

    what = f"tokenizer {source!r}" if isinstance(source, str) else f"the tokenizer inside {where}"
    with tempfile.TemporaryDirectory() as folder, as_data_error(what):
        if isinstance(source, dict):
            for name, text in source.items():
                Path(folder, Path(name).name).write_text(text, encoding="utf-8")
            source = folder
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        return usable(tokenizer, what, architecture)


def usable(tokenizer: Any, what: str, architecture: str) -> Any:
    """Return the tokenizer, with padding; DataError if it has no offsets or no vocabulary."""
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(f"{what}: a fast tokenizer is needed (character offsets)")
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        # transformers 5 makes such a tokenizer for a folder without one: every word is unknown.
        raise DataError(
            f"{what}: has no vocabulary; add the tokenizer's files, or name another tokenizer"
        )
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token  # decoders often have none; masks hide it
    if architecture and architecture not in DECODERS:
        # Padding before a text would move the positions of all encoders but XLNet, whose are
        # relative.
        tokenizer.padding_side = "left" if architecture == "xlnet" else "right"
        if tokenizer.cls_token_id not in tokenizer("a")["input_ids"]:
            raise DataError(f"{what}: writes no classification token, or its files do not fit")
    return tokenizer


def build_tokenizer(architecture: str, words: Iterable[str]) -> Any:
    """Build a fast tokenizer for tiny models, with the special tokens and pair layout of a real
    architecture (tokenizers.yaml): lower-casing, split at white space and punctuation, one id per
    word.

    Code that works with it also works with the pretrained tokenizer of the same architecture: same
    special tokens, same segment ids, same padding side, same `sequence_ids` and offsets. (Only
    padding may differ: it has segment id 0, where XLNet's own tokenizer has 3; no model uses it.)

    Ids: special tokens first, then the words in the order given (without repetitions). Words
    outside the vocabulary become the unknown token. Raises ValueError for an architecture without a
    layout.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    if architecture not in LAYOUTS:
        raise ValueError(f"no token layout of {architecture!r}; choose from {', '.join(LAYOUTS)}")
    layout = LAYOUTS[architecture]
    special = layout["special"]
    pieces = dict.fromkeys([*special.values(), *(word.lower() for word in words)])
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=layout["single"],
        pair=layout["pair"],
        special_tokens=[(token, ids[token]) for token in dict.fromkeys(special.values())],
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **special,
        padding_side=layout.get("side", "right"),
        model_input_names=inputs if ":" in layout["pair"] else [inputs[0], inputs[2]],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )


def warn_of_unknown(tokenizer: Any, rows: Iterable[Sequence[int] | np.ndarray]) -> None:
    """Warn, once for a tokenizer, if it does not know the words of texts.

    `rows` are the token ids of some of them.
    """
    unknown_N = np.concatenate([*rows, []]) == tokenizer.unk_token_id
    share = unknown_N.sum() / max(1, len(unknown_N))
    if share > 0.2 and not getattr(tokenizer, "warned", False):
        tokenizer.warned = True
        logging.getLogger(__name__).warning(
            "more than 20 % of the text's tokens are unknown to the tokenizer; choose another model"
        )


def warn_of_cut(cut: Sequence[bool], what: str) -> None:
    """Warn of texts whose end is cut."""
    if any(cut):
        logging.getLogger(__name__).warning(
            f"{what}: {sum(cut)} of {len(cut)} texts are too long for the model, and lose their end"
        )


def tokenizer_files(tokenizer: Any) -> dict[str, str]:
    """Return the tokenizer's files as text by name, to be stored in a checkpoint."""
    # They would include the settings of its last call; transformers sets these in every call
    # anyway.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files = {
            path.name: path.read_text(encoding="utf-8")
            for path in sorted(Path(folder).iterdir())
            if path.suffix in (".json", ".txt", ".jinja")
        }
    settings = json.loads(files["tokenizer_config.json"])
    settings = {name: value for name, value in settings.items() if name not in OF_THIS_COPY}
    files["tokenizer_config.json"] = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    return files


def tokenizer_id(tokenizer: Any) -> str:
    """Return an id that changes with all that a tokenizer's tokens depend on, not its path."""
    return text_digest(json.dumps(tokenizer_files(tokenizer)))[:16]
