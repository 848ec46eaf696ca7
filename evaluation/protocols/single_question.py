"""One question, with and without advice, for a direct look at models."""

from collections.abc import Iterator
from dataclasses import replace

from interventune.data_modules.schema.questions import QAExample
from interventune.evaluation.answering.interface import Answerer, Compute
from interventune.evaluation.protocol import Evaluation, Protocol, Row, Table
from interventune.storage.command_line import Named

QUESTION = Protocol("One question", measures={}, unit="asked", failures="")


def evaluate(
    *, checkpoint: list[Named], context: str, question: str, advice: str = "", compute: Compute
) -> Evaluation:
    """Answer one question, with and without advice.

    Example: interventune evaluate ask --checkpoint best.ckpt --context "A Tolin baker met a \\
        Kessar baker." --question "Who was rude?" --advice "Note that, origin says nothing about \\
        manners."

    Args:
        checkpoint: a .ckpt, a Hugging Face folder, a Hub name, or a language model (hf:PATH,
            openai:MODEL[@URL]). The table uses NAME.
        context: the text that the question is about.
        question: the question.
        advice: a sentence that is put directly before the question, or where a decoder's prompt has
            it.
        compute: model options.
    """
    import pandas as pd

    example = QAExample("--question", context, question)
    examples = {"without advice": example}
    if advice:
        examples["with advice"] = replace(example, advice=advice)

    def rows(answerer: Answerer) -> Iterator[Row]:
        answers = answerer.answers([*examples.values()])
        for name, answer in zip(examples, sorted(answers), strict=True):
            yield {"asked": name, "answer": answer.text or answer.failure or "no answer"}

    report = QUESTION.run(rows, checkpoint, compute)
    frame = pd.DataFrame(report.examples, dtype=object).fillna("")
    lines = tuple(frame.itertuples(index=False, name=None))
    return replace(report, summary=[Table("Summary", tuple(frame), lines, lead=frame.shape[1])])
