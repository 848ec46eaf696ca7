"""How far does a noun move when a colour is removed from its sentence: its own, or that of the
other noun?

A test of predicate-argument structure (Chaturvedi et al. 2023, section 8): a model that
connects "blue" with "car" should move the embedding of "car" more for "blue" than for the colour of
something else.

Shape letters: R texts, X removed colours, N nouns, L layers, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from interventune.data_modules.schema.questions import QAExample, Span
from interventune.data_modules.tasks.yes_no import COLOUR_PAIRS, SCHEMAS
from interventune.evaluation.answering.interface import Compute
from interventune.evaluation.answering.work import shared
from interventune.evaluation.protocol import Evaluation, Protocol, Row, declared
from interventune.evaluation.statistics import Floats
from interventune.storage.command_line import Named
from interventune.storage.progress import progress

if TYPE_CHECKING:
    from interventune.evaluation.answering.checkpoint import QuestionCheckpoint

Story = tuple[list[str], list[str]]
"""Three texts, a story of two nouns as it is, then without the colour of either; and the nouns."""

SENSITIVITY = Protocol(**declared(__file__))


def evaluate(*, checkpoint: list[Named], compute: Compute) -> Evaluation:
    """Measure how far a noun's embedding moves when its own colour, or the other noun's, is
    removed.

    Example: interventune evaluate sensitivity --checkpoint base=roberta-base ot=A.ckpt \\
        --output report

    Args:
        checkpoint: a .ckpt, a Hugging Face folder or a Hub name. Each is compared with the first.
        compute: model options.
    """
    stories = colour_stories()

    def rows(model: QuestionCheckpoint) -> Iterator[Row]:
        layers = [*range(model.model.config.num_hidden_layers + 1), "last"]
        for (texts, nouns), distance_XNL in zip(stories, distances(model, stories), strict=True):
            for n, noun in enumerate(nouns):
                own_L = distance_XNL[n, n]
                other_L = distance_XNL[1 - n, n]
                numbers = {"own": own_L, "other": other_L, "difference": own_L - other_L}
                row = {"sentence": texts[0], "noun": noun, "layer": layers}
                yield row | {name: [*value_L, value_L[-1]] for name, value_L in numbers.items()}

    return SENSITIVITY.run(rows, checkpoint, compute, need="states")


def colour_stories() -> list[Story]:
    """Return the 130 stories of the predicate-argument probe."""
    stories = list[Story]()
    for (form, *nouns), (first, second) in product(SCHEMAS, COLOUR_PAIRS):
        text = form.format(col1=first, col2=second)
        without = (text.replace(f"{colour} ", "") for colour in (first, second))
        stories.append(([text, *without], nouns))
    return stories


@shared
def distances(model: QuestionCheckpoint, stories: Sequence[Story]) -> Iterator[Floats]:
    """Yield for each story 1 - cosine of the states of either noun (the mean over its tokens)
    before and after either colour is removed, (X, N, L): in the embeddings and every layer.
    """
    import torch
    from torch.nn.functional import cosine_similarity

    from interventune.data_modules.batching.sets import encode_examples
    from interventune.data_modules.encoding.windows import pad_rows, token_span

    for start in progress(range(0, len(stories), model.batch_size), model.path):
        part = stories[start : start + model.batch_size]
        texts = [(text, nouns) for three, nouns in part for text in three]
        examples = [QAExample("a sentence", text, "") for text, _ in texts]
        windows = list(encode_examples(examples, model.tokenizer, model.encoding))
        inputs, _, shift_R = pad_rows(windows, model.tokenizer)
        hidden_RLTD = torch.stack(model.hidden_states(inputs), dim=1)
        states = []
        for window, hidden_LTD, shift, (text, nouns) in zip(
            windows, hidden_RLTD, shift_R.tolist(), texts, strict=True
        ):
            for noun in nouns:
                tokens = token_span(window, Span.locate(noun, text, "the story"))
                assert tokens is not None
                state_LTD = hidden_LTD[:, shift + tokens[0] : shift + tokens[1] + 1]
                # Most removals move a noun by less than float32 can distinguish from 0.
                states.append(state_LTD.double().mean(1))
        for before_NLD, *after in torch.stack(states).unflatten(0, (-1, 3, 2)):
            distance_XNL = 1 - cosine_similarity(torch.stack(after), before_NLD, dim=-1)
            yield distance_XNL.round(decimals=12).cpu().numpy()
