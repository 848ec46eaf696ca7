"""For the protocol that has not moved to the long table yet."""

from evaluation.answering.interface import LANGUAGE_MODELS

__all__ = ["LANGUAGE_MODELS"]
