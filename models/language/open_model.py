"""Language models by name.

model = open_text_model("hf:google/flan-t5-small")
model = open_text_model("openai:gpt-4o-mini")                         # the key from OPENAI_API_KEY
model = open_text_model("openai:llama3@http://localhost:11434/v1")
"""

from __future__ import annotations

from models.language.text_models import TextModel

MOST_AT_ONCE = 8
"""Requests that an endpoint gets at the same time."""


def open_text_model(
    spec: str,
    *,
    max_new_tokens: int = 64,
    device: str = "auto",
    dtype: str = "auto",
    batch_size: int = 8,
    seed: int = 0,
    chat_template: bool = True,
    completions: bool = False,
) -> TextModel:
    """A model by name. Decoding is greedy (temperature 0).

    Args:
        spec: `openai:MODEL[@BASE_URL]` (else the base URL in OPENAI_BASE_URL, else OpenAI's own; the key in
            OPENAI_API_KEY, which a local endpoint may not need) or `hf:PATH_OR_NAME`.
        max_new_tokens: bound on the length of an answer.
        device: of a local model: `auto`, or a device of torch.
        dtype: of a local model's weights: `auto`, or a float type of torch.
        batch_size: prompts that a local model reads at once; at most 8 requests in flight to an endpoint.
        seed: is sent to an endpoint unless 0; a local model's greedy decoding knows no chance.
        chat_template: present prompts to a local model as a user's turn, if its tokenizer has a template.
        completions: have an endpoint continue the bare prompt (`/completions`) rather than answer a turn.

    Raises:
        ValueError: no such kind of model, its key is missing, or it cannot be loaded.
    """
    kind, _, name = spec.partition(":")
    if max_new_tokens < 1 or batch_size < 1:
        raise ValueError("max_new_tokens and batch_size must be at least 1")
    if kind == "openai" and name:
        from models.language.endpoint import EndpointTextModel

        return EndpointTextModel(
            name,
            max_new_tokens=max_new_tokens,
            seed=seed,
            parallel=min(batch_size, MOST_AT_ONCE),
            completions=completions,
        )
    if kind == "hf" and name:
        from models.language.local_model import LocalTextModel

        return LocalTextModel(
            name,
            max_new_tokens=max_new_tokens,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            chat_template=chat_template,
        )
    raise ValueError(
        f"no text model {spec!r}; write openai:MODEL, openai:MODEL@http://HOST/v1 or hf:FOLDER_OR_HUB_NAME"
    )
