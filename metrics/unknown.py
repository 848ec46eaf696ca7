"""What counts as unknown in a text: one list for every protocol, unknown.yaml. It is
English only.
"""

import re
from typing import Any

from interventune.storage.documents import own_yaml

LIST = own_yaml(__file__, dict[str, Any])


def _pattern(text: str) -> re.Pattern[str]:
    for name, meaning in reversed(LIST["classes"].items()):  # a class may contain those above it
        text = re.sub(rf"\b{name}\b", meaning.replace("\\", r"\\"), text)
    return re.compile(text)


_SPELLING = [(re.compile(pattern), written) for pattern, written in LIST["spelling"]]
_NEGATED = _pattern(LIST["negated"])
_BEFORE = f"(?!.*({LIST['unless']})){LIST['before']}"
_FORMS = {name: _pattern(f"{_BEFORE}({'|'.join(forms)})") for name, forms in LIST["forms"].items()}


def unknown_form(text: str) -> str:
    """Return the name of the form in which a text says unknown; "" for an answer. Span models, and
    SQuAD's files of predictions, say so by an empty text.

    >>> [unknown_form(text) for text in ("It isn't clear who lost it.", "The Unknown Soldier", "")]
    ['unknown', '', 'no text']
    """
    spelled = _spelled(text)
    return next((name for name, form in _FORMS.items() if form.match(spelled)), "")


def without_negated(text: str) -> str:
    """Return a text, in plain spelling, without what it negates.

    >>> without_negated("It wasn't the cook but the guest, not the maid.")
    'it was but guest , .'
    """
    return " ".join(_NEGATED.sub("", _spelled(text)).split())


def _spelled(text: str) -> str:
    text = text.lower()
    for pattern, written in _SPELLING:
        text = pattern.sub(written, text)
    return text.strip()
