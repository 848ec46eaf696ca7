"""How far interventions move embeddings, and fine-tuning does: Tables 7 to 9 and Figures 1 to 4 of the
faithfulness paper.

interventune evaluate shift --checkpoint ot=A.ckpt ibt=B.ckpt --data coqa-dev.json --output DIR
torchrun --nproc_per_node 2 -m evaluation shift --checkpoint base=roberta-base ot=A.ckpt \
    --data os.jsonl ts_r.jsonl --layers all --output DIR
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from evaluation.answering.interface import LACKS, LANGUAGE_MODELS, Asking, Compute, named_sources
from evaluation.report import Evaluation, source_record
from evaluation.variants import VariantOptions, read_stories
from storage.command_line import Count, Named


def evaluate(
    *,
    checkpoint: list[Named],
    variants: VariantOptions,
    layers: Literal["last", "all"] = "last",
    between: Literal["none", "first", "consecutive"] | None = None,
    include_question: bool = False,
    chunk: Count = 256,
    compute: Compute,
) -> Evaluation:
    """Cosine similarity of embeddings between originals and variants, and cosine and CKA between checkpoints.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder or a Hub name; several are set side by side, in this order.
        variants: which data in which variants.
        layers: compare originals and variants in the last layer, or in the embeddings and every layer.
        between: compare each checkpoint with the first or with the one before it, on the originals, by layer
            (default: first, where their tokens are the same).
        include_question: the question's tokens are common tokens, too.
        chunk: stories held at a time.
        compute: how models run.
    """
    from evaluation.protocols.shift.measure import measure
    from evaluation.protocols.shift.report import report

    named = named_sources(checkpoint, "--checkpoint")
    if between in ("first", "consecutive") and len(named) < 2:
        raise ValueError(f"--between {between}: needs two checkpoints or more")
    for path in named.values():
        if path.startswith(LANGUAGE_MODELS):
            raise ValueError(f"--checkpoint {path}: {LACKS['embeddings']}")
    stories = read_stories(variants)
    checkpoints, notes, examples = measure(
        named,
        stories,
        Asking(**asdict(compute)),
        every_layer=layers == "all",
        between=between,
        include_question=include_question,
        chunk=chunk,
    )
    about = {
        "protocol": "shift",
        "checkpoints": {name: source_record(path) for name, path in named.items()},
        **stories.about(),
        "stories": len(stories.stories),
        "layers": layers,
        "between": (between or "first") if len(named) > 1 else "none",
        "include_question": include_question,
        "dtype": compute.dtype,
    }
    return report(checkpoints, stories, notes, about, examples)
