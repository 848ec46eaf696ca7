"""How far does a noun move when a colour of its sentence is exchanged: its own, or that of the other noun?

interventune evaluate sensitivity --checkpoint base=roberta-base ot=A.ckpt ibt=B.ckpt --output DIR

An open proposal of the faithfulness paper, of predicate-argument structure: a model that ties "blue" to "car"
should move the embedding of "car" when "blue" changes, and less when the colour of something else does.

Shape letters: L layers, B nouns of a batch, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from data_modules.schema import QAExample, Span
from evaluation.answering.interface import Compute
from evaluation.figures import Lines
from evaluation.frame import Protocol
from evaluation.headlines import Said
from evaluation.processes import shared
from evaluation.report import Evaluation
from evaluation.statistics import Floats, mean
from evaluation.views import View
from storage.command_line import Named

if TYPE_CHECKING:
    from torch import Tensor

    from evaluation.answering.checkpoint import QuestionCheckpoint

NOTE = (
    "Both nouns of the 130 stories of the predicate-argument probe are followed: *distance* is 1 - cosine of "
    "a noun's hidden states (the mean over its tokens) before and after a colour is exchanged for a third "
    "one. `own - other`: above 0, nouns are tied to their own colour more than to the other. Words that "
    "stand nearer move each other more, and adjectives stand beside their nouns: compare checkpoints and "
    "layers."
)


LAYERS = frozenset(range(1000))
"""Layers by number; the last one is also called `last`."""
SENSITIVITY = Protocol(
    title="Sensitivity of nouns to colours",
    unit="sentence",
    units="sentences",
    by=("layer",),
    cells=[("layer",)],
    item=("sentence", "noun"),
    measures={
        "own": mean("its own colour", "own"),
        "other": mean("the other colour", "other"),
        "difference": mean("own - other", "difference"),
    },
    views=[
        View("How far a noun moves (1 - cosine), last layer", (), where={"layer": "last"}),
        View(
            "Own - other, by layer (0: embeddings)",
            ("layer",),
            {"difference": "own - other"},
            where={"layer": LAYERS},
        ),
    ],
    figures={
        "layers.png": Lines(
            x="layer",
            measures={"own": "its own colour", "other": "the other colour", "difference": "own - other"},
            where={"layer": LAYERS},
            label="1 - cosine of a noun",
            x_label="layer (0: embeddings)",
        )
    },
    headline=[
        Said("own", "its own colour exchanged, a noun moves", layer="last"),
        Said("other", "the other colour", layer="last"),
        Said("difference", "own - other", layer="last"),
    ],
    good="nouns move further with their own colour",
    failures="",
    notes=[NOTE],
)


class Story(NamedTuple):
    """A story of two nouns, and the story with the colour of either exchanged."""

    text: str
    exchanged: tuple[str, str]
    nouns: tuple[str, str]


def evaluate(*, checkpoint: list[Named], compute: Compute) -> Evaluation:
    """How far a noun's embedding moves when its own colour is exchanged, and when the other noun's is.

    Args:
        checkpoint: a .ckpt, a Hugging Face folder or a Hub name; several are set side by side, in this order.
        compute: how models run.
    """
    stories = colour_stories()

    def rows(model: QuestionCheckpoint) -> Iterator[dict[str, Any]]:
        layers = [*range(model.model.config.num_hidden_layers + 1), "last"]
        for story, found in zip(stories, distances(model, stories), strict=True):
            for noun, (own_L, other_L) in zip(story.nouns, found, strict=True):
                numbers = {"own": own_L, "other": other_L, "difference": own_L - other_L}
                row = {"sentence": story.text, "noun": noun, "layer": layers}
                yield row | {name: [*x_L, x_L[-1]] for name, x_L in numbers.items()}

    return SENSITIVITY.run(rows, checkpoint, compute, need="states")


def colour_stories() -> list[Story]:
    """The 130 stories of the predicate-argument probe."""
    from data_modules.tasks.predicate_argument import COLOUR_PAIRS, SCHEMAS

    stories = []
    for schema in SCHEMAS:
        for col1, col2 in COLOUR_PAIRS:
            pairs = (col1, col2), (third_colour(col1, col2), col2), (col1, third_colour(col2, col1))
            text, *exchanged = (schema.story.format(col1=one, col2=two) for one, two in pairs)
            stories.append(Story(text, (exchanged[0], exchanged[1]), (schema.first, schema.second)))
    return stories


def third_colour(colour: str, other: str) -> str:
    """The next of the colours that is neither of two.

    >>> third_colour("red", "blue")
    'green'
    """
    from data_modules.tasks.predicate_argument import COLOURS

    following = COLOURS[COLOURS.index(colour) :] + COLOURS
    return next(third for third in following if third not in (colour, other))


@shared
def distances(model: QuestionCheckpoint, stories: Sequence[Story]) -> Iterator[list[tuple[Floats, Floats]]]:
    """For both nouns of each story 1 - cosine of the noun's states before and after its own, and the other,
    colour is exchanged: in the embeddings and every layer."""
    import torch
    from torch.nn.functional import cosine_similarity
    from tqdm.auto import tqdm

    from data_modules.batching.sets import Collator
    from data_modules.encoding.pairs import first_windows

    collator = Collator(model.tokenizer, model.encoding.pad_to_multiple_of)
    for start in tqdm(range(0, len(stories), model.batch_size), model.path, unit="batch", disable=None):
        part = stories[start : start + model.batch_size]
        texts = [text for story in part for text in (story.text, *story.exchanged)]
        examples = [QAExample("a sentence", text, "") for text in texts]
        encoded = [row for row, _ in first_windows(examples, model.tokenizer, model.encoding)]
        inputs, _, shift_R = collator.pad(encoded)
        with torch.inference_mode():
            hidden_LRTD = model.hidden_states(inputs)

        for s, story in enumerate(part):
            states = [
                ([h_RTD[r, int(shift_R[r]) :] for h_RTD in hidden_LRTD], encoded[r].offsets_TE, texts[r])
                for r in range(3 * s, 3 * s + 3)
            ]
            found = []
            for n, noun in enumerate(story.nouns):
                # In float64: most exchanges move a noun by less than float32 tells from 0.
                before_LD, *after = (noun_states(*one, noun) for one in states)
                moved = [1 - cosine_similarity(before_LD, after_LD, dim=-1) for after_LD in after]
                own_L, other_L = (moved[i].round(decimals=12).cpu().numpy() for i in (n, 1 - n))
                found.append((own_L, other_L))
            yield found


def noun_states(hidden_LTD: Sequence[Tensor], offsets_TE: Floats, text: str, noun: str) -> Tensor:
    """The mean over the tokens of a noun, (L, D) in float64."""
    import torch

    from data_modules.encoding.windows import token_span

    start = text.index(noun)
    span = token_span(offsets_TE, Span(start, start + len(noun), noun))
    assert span is not None
    return torch.stack([h_TD[span[0] : span[1] + 1].double().mean(0) for h_TD in hidden_LTD])
