"""A small valid file of every format that the commands read, and the command that reads it.

Each text has a letter outside ASCII, so that a wrong encoding shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data_modules.__main__ import main as data_command
from data_modules.choices.benchmarks import write_choices
from data_modules.interventions.deletion import perturb
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.schema import ChoiceQuestion
from data_modules.stories.questions import qa_examples
from data_modules.tasks.condaqa import ContrastPair, write_pairs
from data_modules.tasks.feature_bias import write_task
from data_modules.tasks.own_tasks import own_task
from evaluation.__main__ import main as evaluation_command
from tests.data_modules.fixtures import tiny_lists
from tests.evaluation.protocols.bias.predictions import lei, rows, unqover
from tests.evaluation.scorers.labelled import labelled_rows

ABSENT = "no-such-checkpoint.ckpt"
"""Named where a command reads its file first: an error that names this one has accepted the file."""
MODEL = f"hf:{ABSENT}"
STORY = "A Tolin baker met a Kessar pilot in the café. The pilot wore a red hat. They drank tea."


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Args:
        name: of the format and its file.
        text: a valid file.
        command: the line that reads it, with {file}, {dir} for the folder of all other files, and {out}.
        document: what `text` holds, if it is JSON.
        lenient: fields that may be absent, of several types or unread; `name.`: all that lies in them, too.
    """

    name: str
    text: str
    command: str
    document: Any = None
    lenient: frozenset[str] = frozenset()

    @property
    def main(self) -> Callable[[list[str]], int]:
        """The entry point that knows the command."""
        known = ("perturb", "condaqa", "lei", "unqover")
        return data_command if self.command.split()[0] in known else evaluation_command

    def arguments(self, file: Path, folder: Path, output: Path) -> list[str]:
        """The command's words for this file."""
        return [word.format(file=file, dir=folder, out=output) for word in self.command.split()]

    def dump(self, document: Any) -> str:
        """A changed document as the text of a file."""
        if self.name.endswith(".jsonl"):
            return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in document)
        return json.dumps(document, ensure_ascii=False)


def written(write: Callable[..., Any], *given: Any, path_first: bool = False) -> Any:
    """The document that one of our writers makes; the word "the" gets an accent."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        write(*((path, *given) if path_first else (*given, path)))
        text = path.read_text(encoding="utf-8").replace("the ", "thé ").replace("The ", "Thé ")
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def coqa_document() -> Any:
    said = "The pilot wore a red hat."
    answers = []
    for turn, (text, why) in enumerate((("red", said), ("yes", STORY[:45])), 1):
        start = STORY.index(why)
        span = {"span_start": start, "span_end": start + len(why), "span_text": why}
        answers.append({"input_text": text, "turn_id": turn, **span})
    asked = ("Which hat?", "Was there a baker?")
    questions = [{"input_text": text, "turn_id": turn} for turn, text in enumerate(asked, 1)]
    story = {"id": "s1", "source": "wikipedia", "story": STORY, "questions": questions, "answers": answers}
    return {"version": "1.0", "data": [{**story, "additional_answers": {"0": answers}}]}


def hotpotqa_document() -> Any:
    question = "Which hat did the pilot of the café wear?"
    context = [["Hats", ["The pilot wore a red hat.", " It was old."]], ["Tea", ["Tea is hot."]]]
    facts = {"supporting_facts": [["Hats", 0]], "context": context}
    return [{"_id": "h1", "question": question, "answer": "red", "type": "bridge", "level": "easy", **facts}]


def row_documents() -> Any:
    return written(write_rows, [perturb(one, "os") for one in islice(qa_examples("conversation_dev"), 2)])


def pair_documents() -> Any:
    pair = ContrastPair(
        id="p1",
        dataset="coqa",
        turn_id=3,
        question="Was the hat red?",
        story_org=STORY,
        story_mod=STORY.replace("wore a", "wore no"),
        answer_org="yes",
        answer_mod="no",
        edit="scope",
    )
    return written(write_pairs, [pair, replace(pair, id="p2")])


def condaqa_documents() -> list[Any]:
    original = {"QuestionID": "q0", "PassageID": 7, "PassageEditID": 0, "sentence1": STORY}
    original |= {"sentence2": "Was the hat red?", "label": "YES"}
    edit = {"PassageEditID": 2, "sentence1": STORY.replace("wore a", "wore no"), "label": "NO"}
    return [original, original | edit]


def stimuli_document() -> list[Any]:
    row = {"schema": 1, "col1": "red", "col2": "blue", "story": STORY, "answer": "yes"}
    row |= {"org": "Was the hat red?", "mod": "Was there a red hat?", "new": "Was the a red hat?"}
    return [row, row | {"org": "Was the hat blue?", "answer": "no"}]


def predictions_document(layout: Callable[[list[Any]], Any]) -> Any:
    return json.loads(json.dumps(layout(rows(("ethical",))[:2])).replace("a visit", "a café visit"))


def specifications_document() -> dict[str, Any]:
    spec: dict[str, Any] = {"template": "Here comes {}:", "separator": "\n", "blank": " "}
    spec |= {"original": ["a café fight", "rude words"], "opposite": ["a café party", "kind words"]}
    return {"self": {**spec, "nonsense": [["xq zz", "gh aa"], ["pp oo", "kk ii"]]}}


def piqa_documents() -> list[Any]:
    return [
        {"goal": f"Make {what} in a café", "sol1": f"boil the {what}", "sol2": "sing", "label": i % 2}
        for i, what in enumerate(("tea", "soup", "rice"))
    ]


def hellaswag_documents() -> list[Any]:
    return [
        {
            "ctx_a": f"A {who} sits in a café.",
            "ctx_b": "She",
            "endings": [f"{does} like a {who}." for does in ("drinks", "flies", "sings", "sleeps")],
            "label": i % 4,
        }
        for i, who in enumerate(("pilot", "baker", "queen", "child", "cook", "king"))
    ]


def choice_documents() -> Any:
    examples = [
        ChoiceQuestion(f"q{i}", f"Who {what} the café?", (f"no {what}", f"all {what}"), 1, "mine")
        for i, what in enumerate(("runs", "leaves", "cleans", "sells", "knows"))
    ]
    return written(write_choices, examples, path_first=True)


def task_document() -> Any:
    """A small part of an embedded task."""
    document = written(write_task, own_task("uppercase"), path_first=True)
    return {key: part[:3] if isinstance(part, list) else part for key, part in document.items()}


def wordings_document() -> dict[str, Any]:
    wording: dict[str, Any] = {"key": "Café?", "words": ["no", "yes"], "instruction": "Write 1 for good."}
    return {
        "*": {"h2": {**wording, "explanation": ["Bad, so the answer is 0.", "Good, so the answer is 1."]}}
    }


def scorer_document() -> dict[str, Any]:
    """Two features a kind, six attributes."""
    shares = {"n": 9, "roc_auc": 0.9, "average_precision": 0.8, "f1": 0.7, "base_rate": 0.5}
    names = ("toxicity", "severe_toxicity", "sexually_explicit", "threat", "profanity", "identity_attack")
    words = {"analyzer": "word", "ngrams": [1, 1], "terms": ["café", "stupid"], "idf": [1.5, 1.25]}
    letters = {"analyzer": "char_wb", "ngrams": [2, 3], "terms": ["st", "fé"], "idf": [1.5, 1.25]}
    return {
        "format": "interventune-scorer",
        "version": 1,
        "held_out": {name: dict(shares) for name in names},
        "trained": {"seed": 0},
        "weights": {name: {"intercept": -0.5, "coef": [0.1, 1.5, -0.25, 2.5]} for name in names},
        "features": [words, letters],
    }


PERTURB = "perturb --variant os --input {file} --output {out} --dataset"
PREDICTED = "bias --predictions {file} --output {out}"
CONSISTENCY = (
    f"consistency --model {MODEL} --method self --device cpu --nonsense-groups 2 --output {{out}}"
    " --adversarial {dir}/prompts.jsonl --neutral {dir}/neutral.jsonl --scorer embedded:{dir}/scorer.json"
)
CONFUSION = (
    f"confusion --checkpoint {ABSENT} --output {{out}} --device cpu --trials 1 --choices 3 --sampling random"
    " --probes no-question wrong-question no-right-answer --input"
)
FEATURES = (
    f"feature-bias --model {MODEL} --output {{out}} --device cpu --shots 2 --seeds 1"
    " --intervention instruction --steer h2 --task"
)
LISTS = "--subjects {dir}/subjects --templates {dir}/templates --attributes {dir}/attributes --output {out}"


def _json(name: str, document: Any, command: str, lenient: str = "") -> Format:
    form = Format(name, "", command, json.loads(json.dumps(document)), frozenset(lenient.split()))
    return Format(name, form.dump(form.document), command, form.document, form.lenient)


def _formats() -> Iterable[Format]:
    yield _json(
        "squad.json",
        written(write_squad, list(islice(qa_examples("dev"), 2))),
        f"{PERTURB} squad",
        "version title is_impossible id",
    )
    yield _json("coqa.json", coqa_document(), f"{PERTURB} coqa", "version span_text id additional_answers.")
    yield _json(
        "hotpotqa.json", hotpotqa_document(), f"{PERTURB} hotpotqa", "level _id context supporting_facts"
    )
    yield _json("rows.jsonl", row_documents(), f"{PERTURB} stories", "answers")
    lei_fields = "version title is_impossible tomax id"
    yield _json("lei.json", predictions_document(lei), PREDICTED, lei_fields)
    yield _json("unqover.json", predictions_document(unqover), PREDICTED, "pred")
    ask = f"--checkpoint {ABSENT} --output {{out}}"
    pair_fields = "id dataset turn_id history edit"
    yield _json("pairs.jsonl", pair_documents(), f"negation --pairs {{file}} {ask}", pair_fields)
    condaqa = "condaqa --input {file} --output {out}"
    yield _json("condaqa.jsonl", condaqa_documents(), condaqa, "QuestionID PassageID")
    yield _json("stimuli.json", stimuli_document(), f"predicate-argument --stimuli {{file}} {ask}")
    interventions = json.loads(json.dumps(tiny_lists.INTERVENTIONS).replace("Tea was", "Café was"))
    lei_command = f"lei {LISTS} --interventions"
    yield _json("interventions.json", interventions, f"{lei_command} {{file}}", "rude wealth")
    prompts = [{"prompt": {"text": f"The {who} in the café said that"}} for who in ("pilot", "baker")]
    yield _json("prompts.jsonl", prompts, f"{CONSISTENCY} --adversarial {{file}}")
    specifications = f"{CONSISTENCY} --specifications {{file}}"
    yield _json("specifications.json", specifications_document(), specifications, "blank nonsense")
    scorer = scorer_document()
    free = ("seed intercept roc_auc average_precision f1 base_rate coef idf", *scorer["weights"])
    yield _json("scorer.json", scorer, f"{CONSISTENCY} --scorer embedded:{{file}}", " ".join(free))
    yield _json("piqa.jsonl", piqa_documents(), f"{CONFUSION} {{file}}")
    yield _json("hellaswag.jsonl", hellaswag_documents(), f"{CONFUSION} {{file}}")
    choice_fields = "benchmark probe donors target id"
    yield _json("choices.jsonl", choice_documents(), f"{CONFUSION} {{file}}", choice_fields)
    task_fields = "features. made_from. split id answer"
    yield _json("task.json", task_document(), f"{FEATURES} {{file}}", task_fields)
    wording = f"{FEATURES} {{dir}}/task.json --wording {{file}}"
    yield _json("wordings.json", wordings_document(), wording, "* key words instruction explanation")
    labelled = [{"text": f"{row['text']} café", "toxicity": row["toxicity"]} for row in labelled_rows(60)]
    yield _json("labelled.jsonl", labelled, "train-scorer --input {file} --output {out}", "toxicity")
    yield Format("labels.lst", "0\n1\n0\n", f"{CONFUSION} {{dir}}/unlabelled.jsonl --labels {{file}}")
    subjects = tiny_lists.SUBJECTS + "[subj] Café\n"
    templates = tiny_lists.TEMPLATES.replace("A [subj1]", "In a café a [subj1]")
    attributes = tiny_lists.ATTRIBUTES.replace("owned a mill", "owned a café")
    for name, text in (("subjects", subjects), ("templates", templates), ("attributes", attributes)):
        yield Format(name, text, f"unqover {LISTS} --{name} {{file}}")
    names = ("were loud", "were grumpy", "owned a empty shed", "owned no Shed")
    sentences = "".join(f"{name}\t[subj] was in the café.\n" for name in names)
    specified = f"{lei_command} {{dir}}/interventions.json --specified {{file}}"
    yield Format("sentences.tsv", sentences, specified)
    yield Format("filler", "[text] They met in a café.\n", f"unqover {LISTS} --filler {{file}}")


FORMATS: tuple[Format, ...] = tuple(_formats())


def write_companions(folder: Path) -> None:
    """Good files of every kind, for the commands that read several."""
    for form in FORMATS:
        (folder / form.name).write_text(form.text, encoding="utf-8")
    (folder / "neutral.jsonl").write_text('{"text": "The garden is"}\n{"text": "The road is"}\n')
    unlabelled = [{key: row[key] for key in ("goal", "sol1", "sol2")} for row in piqa_documents()]
    (folder / "unlabelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in unlabelled))
