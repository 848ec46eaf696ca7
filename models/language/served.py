"""A language model behind a server that reads token ids (`POST /v1/completions`): it writes, and
gives the log-probabilities of given texts, as a local model does.

Prompts are tokenised here, so the server adds neither special tokens nor a chat template. With
`echo`, a server returns the log-probability of every token of a prompt but the first. Servers do
this wrongly in several ways, some of them in silence: a self-test comes before the first question.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any

import openai

from .endpoint import NONSENSE, REFUSED, Endpoint
from .text_models import Prompt, TextFailure, reply
from .token_model import Ids, TokenModel, Unit, fitting

ROWS = 16
"""Largest number of token rows in a request, if each of its prompts has fewer texts."""
TIMEOUT_S = 600.0
"""Limit of a request, which may wait for others in the server's queue."""
TOLERANCE = 0.1
"""Largest difference between two log-probabilities of one text, in nats."""
LEAST = -9999.0
"""What vLLM writes for minus infinity."""
PAIRS = (
    ("The capital of France is", " Paris"),
    ("The capital of France is", " sirap fo eman eht"),
    ("One, two, three, four,", " five"),
)
"""Prompts and texts of the self-test; any model finds the first likelier than the second."""
VLLM = "serve the model with vLLM or SGLang (vLLM: set VLLM_USE_V2_MODEL_RUNNER=0)"


class ServedModel(TokenModel):
    """A causal model behind a server.

    Args:
        model: `MODEL` or `MODEL@BASE_URL`, see `Endpoint`.
        tokens: the model's tokenizer, as
            `interventune.data_modules.encoding.prompts.PromptTokens`.
        max_new_tokens: limit on the length of an answer.
        parallel: maximum number of concurrent requests.
    """

    def __init__(self, model: str, tokens: Any, *, max_new_tokens: int, parallel: int) -> None:
        self.endpoint = Endpoint(model, parallel, TIMEOUT_S)
        self.name = self.endpoint.name
        self.tokens = tokens
        self.space = tokens.space
        self.max_new_tokens = max_new_tokens
        self.identity = self.endpoint.identity | {
            "tokens": tokens.identity,
            "max_new_tokens": max_new_tokens,
        }

    def write(self, rows: Sequence[Ids]) -> Iterator[str | TextFailure]:
        def ask(units: Sequence[Unit]) -> Any:
            return self._send([prompt for prompt, _ in units], texts, self.max_new_tokens)

        def texts(choices: list[Any]) -> list[str | TextFailure]:
            return [reply(self.tokens.opening + choice.text) for choice in choices]

        return self._answers([(row, ((),)) for row in rows], ask)

    def score(self, units: Sequence[Unit]) -> Iterator[list[float] | TextFailure]:
        if units and self._tested:
            yield from self._answers(units, self._sums)

    def next_token_logprobs(
        self, prompts: Sequence[Prompt], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[Sequence[float] | TextFailure]:
        """Each label is scored as a text; servers report only few of the likeliest tokens."""
        label_ids = self.first_tokens(labels, after)
        rows = self.prompt_ids(prompts)
        failures = [self.misfit(row, 0) for row in rows]
        scored = fitting(
            [(row, tuple((i,) for i in label_ids)) for row in rows], failures, self.score
        )
        least = fitting(rows, failures, partial(self._least, top=top))
        for log_L, bound in zip(scored, least, strict=True):
            if isinstance(log_L, TextFailure):
                yield log_L
            elif isinstance(bound, TextFailure):
                yield bound
            else:
                yield [log_p if log_p >= bound else -math.inf for log_p in log_L]

    def _least(self, rows: Sequence[Ids], top: int) -> Iterator[float | TextFailure]:
        """The log-probability of the `top`th likeliest token after each row; -inf for all (0)."""
        if not top:
            return iter([-math.inf] * len(rows))

        def ask(units: Sequence[Unit]) -> Any:
            return self._send([prompt for prompt, _ in units], read, 1, logprobs=top)

        def read(choices: list[Any]) -> list[float]:
            return [min(choice.logprobs.top_logprobs[0].values()) for choice in choices]

        return self._answers([(row, ((),)) for row in rows], ask)

    def _answers(
        self, units: Sequence[Unit], ask: Callable[[Sequence[Unit]], Any]
    ) -> Iterator[Any]:
        """Yield the answer to each unit, in order; `ask` returns those to several, or the reason
        why there are none.
        """
        packs = list[list[Unit]]()
        room = 0
        for unit in units:
            room -= len(unit[1])
            if room < 0:
                packs.append([])
                room = ROWS - len(unit[1])
            packs[-1].append(unit)

        def each(pack: Sequence[Unit]) -> list[Any]:
            answers = ask(pack)
            if answers == REFUSED and len(pack) > 1:  # perhaps because of one of them
                return list(chain.from_iterable(each([unit]) for unit in pack))
            if answers == REFUSED and len(pack[0][1]) > 1:  # one row a request
                prompt, texts = pack[0]
                parts = [each([(prompt, (text,))])[0] for text in texts]
                failures = [part for part in parts if isinstance(part, TextFailure)]
                return failures[:1] or [list(chain.from_iterable(parts))]
            return [answers] * len(pack) if isinstance(answers, TextFailure) else answers

        return self.endpoint.answers(packs, each)

    def _sums(self, units: Sequence[Unit]) -> list[list[float]] | TextFailure:
        """The log-probability of every text of each unit."""
        rows = [(len(prompt), [*prompt, *text]) for prompt, texts in units for text in texts]

        def read(choices: list[Any]) -> list[list[float]]:
            sums = list[float]()
            for choice, (start, row) in zip(choices, rows, strict=True):
                values = choice.logprobs.token_logprobs[: len(row)]
                if len(values) < len(row):
                    raise IndexError
                sums.append(math.fsum(values[start:]))
            rest = iter(sums)
            return [[next(rest) for _ in texts] for _, texts in units]

        return self._echo([row for _, row in rows], read)

    def _echo(self, rows: Sequence[Sequence[int]], read: Callable[[list[Any]], Any]) -> Any:
        return self._send(rows, read, 1, echo=True, logprobs=1)

    def _send(
        self,
        rows: Sequence[Sequence[int]],
        read: Callable[[list[Any]], Any],
        max_tokens: int,
        **options: Any,
    ) -> Any:
        """What `read` makes of the choices, one for each row, or the reason why there are none."""

        def in_order(response: Any) -> Any:
            choices = sorted(response.choices, key=lambda choice: choice.index)
            return read(choices) if len(choices) == len(rows) else NONSENSE

        create = self.endpoint.client.completions.create
        prompt = [[*row] for row in rows]
        return self.endpoint.send(
            create, in_order, prompt=prompt, max_tokens=max_tokens, seed=0, **options
        )

    @cached_property
    def limit(self) -> int | None:  # type: ignore[override]
        """The number of positions of the model, if the server tells (vLLM, SGLang)."""
        try:
            cards = list(self.endpoint.client.models.list())
        except openai.OpenAIError:  # the first question will say why
            return None
        names = {card.id: getattr(card, "max_model_len", None) for card in cards}
        return names.get(self.endpoint.model)

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
        sums: list[list[float]] = [[] for _ in rows]
        for order in ([0], [1], [2], [0, 1, 2], [2, 1, 0]):
            echoes = self._echo([rows[i] for i in order], lambda choices: choices)
            if echoes == REFUSED and len(order) > 1:  # one prompt a request
                continue
            if isinstance(echoes, TextFailure):
                self._refuse(f"cannot echo log-probabilities ({echoes})", VLLM)
            for i, choice in zip(order, echoes, strict=True):
                self._require_echo(rows[i], choice.logprobs)
                sums[i].append(
                    math.fsum(choice.logprobs.token_logprobs[len(before[i]) : len(rows[i])])
                )
        if any(max(values) - min(values) > TOLERANCE for values in sums):
            self._refuse(
                "gives a text other log-probabilities in another order of prompts",
                "switch off prefix caching (vLLM: --no-enable-prefix-caching)",
            )
        if sums[0][0] <= sums[1][0]:
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
