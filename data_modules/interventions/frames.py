"""Sentences around an answer that say nothing else (faithfulness spec 1.6)."""

from __future__ import annotations

import re

FRAMES = (
    "The note on the wall said {answer}.",
    "A sign by the road said {answer}.",
    "The last line of the song was {answer}.",
    "The title of an old film was {answer}.",
    "On the back of the map it said {answer}.",
    "A voice on the radio said {answer}.",
    "Somebody wrote {answer} on a piece of paper.",
    "An old book had {answer} on its first page.",
    "There was a card with {answer} on it.",
    "Nobody knew why {answer} was in the letter.",
)
"""True of any phrase, be it a name, a number or a clause, because they mention it and do not use it."""


def frame_words() -> tuple[str, ...]:
    """Every word of the frames, lower case, sorted, without duplicates."""
    return tuple(sorted(set(re.findall(r"[a-z]+", " ".join(FRAMES).replace("{answer}", "").lower()))))
