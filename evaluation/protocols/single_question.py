"""One question, with and without advice, for a direct look at a model."""

from dataclasses import replace

from interventune.data_modules.schema.questions import QAExample
from interventune.evaluation.answering.interface import Compute, open_answerer
from interventune.evaluation.protocol import Evaluation, Results


def evaluate(
    *, checkpoint: str, context: str, question: str, advice: str = "", compute: Compute
) -> Evaluation:
    """Answer one question, with and without advice.

    Example: interventune evaluate ask --checkpoint best.ckpt --context "A Tolin baker met a \\
        Kessar baker." --question "Who was rude?" --advice "Note that, origin says nothing about \\
        manners."

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]).
        context: the text that the question is about.
        question: the question.
        advice: a sentence that is put directly before the question, or where a decoder's prompt has
            it.
        compute: model options.
    """
    example = QAExample("--question", context, question)
    examples = {"without advice": example}
    if advice:
        examples["with advice"] = replace(example, advice=advice)
    answers = open_answerer(checkpoint, compute).answers([*examples.values()])
    texts = {
        name: answer.text or answer.failure or "no answer"
        for name, answer in zip(examples, sorted(answers), strict=True)
    }
    return Evaluation(
        title="One question",
        results=Results(("asked",), "questions"),
        views=[],
        headline="; ".join(f"{name}: {text}" for name, text in texts.items()) + ".",
        examples=[{"asked": name, "answer": text} for name, text in texts.items()],
    )
