"""Where an OpenAI-compatible endpoint is, and the key that it takes."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

OPENAI_URL = "https://api.openai.com/v1"

_PLACEHOLDER = "no-key"


def model_and_url(spec: str) -> tuple[str, str]:
    """The parts of `MODEL[@BASE_URL]`; ValueError where one of them cannot be."""
    model, at, url = spec.partition("@")
    if at and "://" not in url and not re.search(r"[:/]", url):
        model, url = spec, ""  # a model whose own name has an @ in it, as in model@version
    elif "@http" in url:
        model, url = re.split(r"@(?=https?://)", spec, maxsplit=1)
    url = checked_url(
        url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL,
        write="openai:MODEL@http://HOST:PORT/v1",
        key="OPENAI_API_KEY",
    )
    if not model:
        raise ValueError("openai: needs the name of a model, as in openai:gpt-4o-mini")
    return model, url


def checked_url(url: str, *, write: str, key: str) -> str:
    """A base URL without its last slash.

    Raises:
        ValueError: it is none (the error says what to `write`), or it carries secrets, which belong into the
            environment variable `key`.
    """
    url = url.rstrip("/")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for a port that is no number)
    except ValueError as error:
        raise ValueError(f"{url!r} is no base URL ({error}); write {write}") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"a base URL carries no user, password or query; put the key into {key}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no base URL; write {write}")
    return url


def is_openai(url: str) -> bool:
    """Whether a base URL is OpenAI's own."""
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def key_for(url: str) -> str:
    """OPENAI_API_KEY; ValueError where there is none and OpenAI's own endpoint needs one."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not key and is_openai(url):
        raise ValueError("OPENAI_API_KEY is not set; set it, or name another endpoint: openai:MODEL@BASE_URL")
    return checked_key(key, "OPENAI_API_KEY") or _PLACEHOLDER


def checked_key(key: str, name: str) -> str:
    """The key; ValueError names the environment variable where it cannot be one."""
    if not (key.isascii() and key.isprintable()):
        raise ValueError(f"{name} holds characters that no key has; set it anew")
    return key
