"""CoConflictQA: questions whose context contradicts what a language model remembers (Huang et al.
2025, ParamMute). Its rows are SQuAD's without offsets, and have that answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from interventune.data_modules.questions.answer_spans import normalised, occurs
from interventune.data_modules.schema.questions import QAExample


def remembering(example: QAExample, references: Iterable[str], remembered: str) -> QAExample:
    """Return the question with the remembered answer; a blank one counts as none. Its domain says
    whether this answer also occurs in the context (both in SQuAD's normal form).
    """
    words = normalised(remembered)
    within = words and occurs(words, normalised(example.context))
    return replace(
        example,
        references=tuple(references),
        remembered=(remembered.strip(),) * bool(words),
        dataset="coconflictqa",
        domain=f"remembered answer {'' if within else 'not '}in the text",
    )
