"""A language model behind a server that reads token ids (`POST /v1/completions`): it writes, and
gives the log-probabilities of given texts, as a local model does.

Prompts are tokenised here, so the server adds neither special tokens nor a chat template. With
`echo`, a server returns the log-probability of every token of a prompt but the first. Servers do
this wrongly in several ways, some of them in silence: a self-test comes before the first question.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import openai

from .endpoint import NONSENSE, REFUSED, Endpoint
from .text_models import LogProbs, Reply, Rows, TextFailure, TokenModel, Units, packed, reply

ROWS = 16
"""Largest number of token rows in a request, if each of its prompts has fewer texts."""
TOLERANCE = 0.1
"""Largest difference between two log-probabilities of one text, in nats."""
ECHO: dict[str, Any] = {"max_tokens": 1, "echo": True, "logprobs": 1}
"""Options of a request for the log-probabilities of given texts."""
LEAST = -9999.0
"""What vLLM writes for minus infinity."""
PAIRS = (
    ("The capital of France is", " Paris"),
    ("The capital of France is", " sirap fo eman eht"),
    ("One, two, three, four,", " five"),
)
"""Prompts and texts of the self-test; any model finds the first likelier than the second."""
VLLM = "serve the model with vLLM or SGLang (vLLM: set VLLM_USE_V2_MODEL_RUNNER=0)"


class ServedModel(Endpoint, TokenModel):
    """A causal model behind a server.

    Args:
        model: see `Endpoint`, as for `options`.
        tokens: the model's tokenizer, as
            `interventune.data_modules.encoding.prompts.PromptTokens`.
    """

    timeout_s = 600.0
    """A request may wait for others in the server's queue."""

    def __init__(self, model: str, tokens: Any, **options: int) -> None:
        super().__init__(model, tokens=tokens.identity, **options)
        self.tokens = tokens
        self.space = tokens.space

    def write(self, rows: Rows) -> Iterator[Reply]:
        def texts(choices: list[Any], _: object) -> list[Reply]:
            return [reply(self.tokens.opening + choice.text) for choice in choices]

        return self._answers(alone(rows), texts, max_tokens=self.max_new_tokens)

    def score(self, units: Units) -> Iterator[LogProbs]:
        if units and self._tested:
            yield from self._answers(units, sums, **ECHO)

    def token_logprobs(self, rows: Rows, tokens: list[int], top: int) -> Iterator[LogProbs]:
        """Each token is scored as a text; servers report only few of the likeliest tokens."""

        def least(choices: list[Any], _: object) -> list[float]:
            return [min(choice.logprobs.top_logprobs[0].values()) for choice in choices]

        texts = tuple((token,) for token in tokens)
        scored = self.score([(tuple(row), texts) for row in rows])
        bounds: Any = [-math.inf] * len(rows)
        if top:
            bounds = self._answers(alone(rows), least, max_tokens=1, logprobs=top)
        for log_L, bound in zip(scored, bounds, strict=True):
            if isinstance(log_L, TextFailure):
                yield log_L
            elif isinstance(bound, TextFailure):
                yield bound
            else:
                yield [log_p if log_p >= bound else -math.inf for log_p in log_L]

    def _answers(
        self, units: Units, read: Callable[[list[Any], Units], list[Any]], **options: Any
    ) -> Iterator[Any]:
        """Yield the answer to each unit, in order, or the reason why there is none. A prompt with
        each of its texts is a row; `read` makes answers of the choices for the rows of some units.
        """

        def ask(pack: Units) -> list[Any]:
            rows = [[*prompt, *text] for prompt, texts in pack for text in texts]
            answers = self._send(rows, lambda choices: read(choices, pack), **options)
            if answers == REFUSED and len(pack) > 1:  # perhaps because of one of them
                return list(chain.from_iterable(ask([unit]) for unit in pack))
            if answers == REFUSED and len(rows) > 1:  # one row a request
                prompt, texts = pack[0]
                parts = [ask([(prompt, (text,))])[0] for text in texts]
                failures = [part for part in parts if isinstance(part, TextFailure)]
                return failures[:1] or [list(chain.from_iterable(parts))]
            return [answers] * len(pack) if isinstance(answers, TextFailure) else answers

        return self.in_parallel(packed(units, lambda unit: len(unit[1]), ROWS), ask)

    def _send(self, rows: Rows, read: Callable[[list[Any]], Any], **options: Any) -> Any:
        """What `read` makes of the choices, one for each row, or the reason why there are none."""

        def in_order(response: Any) -> Any:
            choices = sorted(response.choices, key=lambda choice: choice.index)
            return read(choices) if len(choices) == len(rows) else NONSENSE

        return self.send(self.client.completions.create, in_order, prompt=rows, seed=0, **options)

    @cached_property
    def limit(self) -> int | None:  # type: ignore[override]
        """The number of positions of the model, if the server tells (vLLM, SGLang)."""
        try:
            cards = [card for card in self.client.models.list() if card.id == self.model]
        except (openai.OpenAIError, AttributeError, TypeError):  # the first question will say why
            return None
        limits = [getattr(card, "max_model_len", None) for card in cards]
        return next((limit for limit in limits if isinstance(limit, int)), None)

    @cached_property
    def _tested(self) -> bool:
        """True if the log-probabilities of given texts have the properties that they must have.

        Raises:
            ValueError: they do not; the message names the server's fault and a remedy.
        """
        prompts, texts = zip(*PAIRS, strict=True)
        before = [[*self.tokens.lead, *ids] for ids in self.tokens.ids(prompts)]
        after = self.tokens.after(prompts, texts)
        rows = [[*prompt, *text] for prompt, text in zip(before, after, strict=True)]
        found: list[list[float]] = [[] for _ in rows]
        for order in ([0], [1], [2], [0, 1, 2], [2, 1, 0]):

            def keep(choices: list[Any], order: list[int] = order) -> None:
                for i, choice in zip(order, choices, strict=True):
                    self._require_echo(rows[i], choice.logprobs)
                    found[i].append(log_probability(choice, before[i], after[i]))

            failure = self._send([rows[i] for i in order], keep, **ECHO)
            if failure == REFUSED and len(order) > 1:  # one prompt a request
                continue
            if failure:
                self._refuse(f"cannot echo log-probabilities ({failure})", VLLM)
        if any(max(values) - min(values) > TOLERANCE for values in found):
            self._refuse(
                "gives a text other log-probabilities in another order of prompts",
                "switch off prefix caching (vLLM: --no-enable-prefix-caching)",
            )
        if found[0][0] <= found[1][0]:
            self._refuse(
                f"finds {texts[1]!r} likelier than {texts[0]!r} after {prompts[0]!r}",
                "check that --tokenizer is the tokenizer of this model",
            )
        return True

    def _require_echo(self, row: Sequence[int], echo: Any) -> None:
        """ValueError if an echo does not have a log-probability for each token but the first."""
        values = list(getattr(echo, "token_logprobs", None) or ())
        if len(values) < len(row):
            self._refuse(
                f"gives {len(values)} log-probabilities for {len(row)} tokens: it ignores echo",
                VLLM,
            )
        names = {
            self.tokens.tokenizer.decode(row[:1]),
            *self.tokens.tokenizer.convert_ids_to_tokens(row[:1]),
        }
        if len(values) > len(row) + 1 or values[0] is not None or echo.tokens[0] not in names:
            self._refuse(
                "puts a token of its own before the prompt", "switch off its special tokens (BOS)"
            )
        if not all(LEAST < value <= 0 for value in values[1 : len(row)]):
            self._refuse(
                "gives log-probabilities that are no finite numbers",
                "serve it with --dtype float32",
            )

    def _refuse(self, fault: str, remedy: str) -> None:
        raise ValueError(f"{self.name}: the server {fault}; {remedy}")


def alone(rows: Rows) -> Units:
    """Return units of prompts without texts: a row each."""
    return [(tuple(row), ((),)) for row in rows]


def sums(choices: list[Any], units: Units) -> list[list[float]]:
    """Return the log-probability of every text of each unit, from the echo of each row."""
    echoes = iter(choices)
    return [
        [log_probability(next(echoes), prompt, text) for text in texts] for prompt, texts in units
    ]


def log_probability(echo: Any, prompt: Sequence[int], text: Sequence[int]) -> float:
    """Return that of a text after a prompt; IndexError if the echo is shorter."""
    end = len(prompt) + len(text)
    values = echo.logprobs.token_logprobs[:end]
    if len(values) < end:
        raise IndexError
    return math.fsum(values[len(prompt) :])
