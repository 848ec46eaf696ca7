"""Decoders: likelihoods beside lm-evaluation-harness, group losses from shared prompts beside whole rows.

python -m benchmarks likelihoods [--model FOLDER] [--questions SOURCE]     (pip install lm-eval)
python -m benchmarks group_losses [--model FOLDER]

Without a folder the model has SmolLM2-135M's shape, random weights and a small tokenizer. Questions are the
first 300 of the source, as piqa/valid.jsonl+piqa/valid-labels.lst; without one, embedded ones.

Shape letters: R rows, V variants of a group, S its subjects, T tokens, E first and last token.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Row, rows_of
from benchmarks.turns import Turn, in_turns, own_processes, side_by_side
from data_modules.batching.group_set import GroupSet
from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.encoding.windows import Encoding
from data_modules.schema import ChoiceQuestion
from data_modules.sources import read_choices, read_groups, split_labels
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.interface import Choosing
from evaluation.answering.language_model import LanguageModel
from losses.group import GroupLoss
from models.backbones import Backbone
from models.checkpoint import start
from models.heads.causal import CausalModel

SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "vocab_size": 49_152,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
QUICK = {**SMOLLM2, "hidden_size": 36, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 999}
OURS, LM_EVAL = "interventune", "lm-evaluation-harness, batches of {}"
GROUPS, RANK = 2, 8
"""Groups of a step, and the adapter's rank."""
TASK = """task: choices
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {file}}}}}
validation_split: validation
output_type: multiple_choice
doc_to_text: "Question: {{{{query}}}}\\nAnswer:"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list: [{{metric: acc}}]
"""


class Work(NamedTuple):
    """What is done: folders of the model and of the task, how many questions or groups, and their source."""

    model: str
    folder: str
    size: int
    source: str


def likelihoods(
    *, repeats: int, quick: bool, model: str = "", questions: str = "stories:choices_dev"
) -> list[Row]:
    """Questions a second; accuracy, and the largest difference of a log-likelihood, as notes.

    Accuracies are the same, and log-likelihoods to 1e-4, and a millionth of themselves where they are below
    -100, once lm-eval sums 49,152 exponentials in float64 (`softmax_dtype`), for which it reads the questions
    once more; its own default is as far from the truth as the other note says.
    """
    if find_spec("lm_eval") is None:
        print("SKIPPED: lm_eval is not installed (pip install lm-eval==0.4.13)")
        return []
    with tempfile.TemporaryDirectory() as folder:
        work = Work(model or save_model(folder, quick=quick), folder, 6 if quick else 300, questions)
        asked = questions_of(work)
        rows = [{"query": q.prompt, "choices": q.choices, "gold": q.label} for q in asked]
        file = Path(folder) / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (Path(folder) / "choices.yaml").write_text(TASK.format(file=file), encoding="utf-8")
        systems: dict[str, Callable[[Work], Turn]] = {OURS: run_interventune}
        systems |= {LM_EVAL.format(size): partial(run_lm_eval, size, "") for size in (1, 8)}
        with own_processes(systems, apart=not quick) as call:
            exact = call[LM_EVAL.format(8)](run_lm_eval, 8, "float64", work).found
            call[OURS](run_interventune, work._replace(size=6))
            call[LM_EVAL.format(1)](run_lm_eval, 1, "", work._replace(size=6))
            made = in_turns(systems, repeats, lambda name, _: call[name](systems[name], work))
    for name, turns in made.items():
        for turn in turns:
            turn.notes["accuracy"] = accuracy(turn.found, asked)
            turn.notes["largest difference from float64 softmax"] = difference(turn.found, exact)
            assert turn.notes["accuracy"] == accuracy(exact, asked), f"{name} chooses otherwise"
            wrong = [row for row in zip(turn.found, exact, strict=True) if not np.allclose(*row, 1e-6, 1e-4)]
            assert name != OURS or not wrong, f"log-likelihoods differ: {wrong[0]}"
    source = Path(split_labels(questions)[0]).name
    return rows_of("likelihoods", "questions/s", made, {"questions": f"{len(asked)} ({source})"})


def save_model(folder: str, *, quick: bool) -> str:
    """The folder of a random model with a tokenizer of the embedded words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    path = f"{folder}/model"
    tokenizer = build_tokenizer("llama", sorted({*vocabulary(), "Question", "Answer", ":", "."}))
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    LlamaForCausalLM(LlamaConfig(**(QUICK if quick else SMOLLM2), **ends)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@lru_cache(maxsize=1)
def questions_of(work: Work) -> list[ChoiceQuestion]:
    """The first of the source; white space around texts is taken away, as we do."""
    return [
        ChoiceQuestion(q.id, q.prompt.strip(), tuple(map(str.strip, q.choices)), q.label)
        for q in read_choices(work.source)[: work.size]
    ]


@lru_cache(maxsize=1)
def our_model(folder: str) -> LanguageModel:
    """As `evaluate confusion --prompt question --likelihood sum` opens it."""
    return LanguageModel(f"hf:{folder}", Choosing(device="cpu", choice_prompt="question", likelihood="sum"))


def run_interventune(work: Work) -> Turn:
    """Ours, from questions to log-likelihoods."""
    model, questions = our_model(work.model), questions_of(work)
    began = now()
    found = [logit_C.tolist() for logit_C in model.choice_logits(questions)]
    return _turn(len(found), now() - began, found)


@lru_cache(maxsize=1)
def their_model(folder: str, batch_size: int, softmax: str) -> Any:
    """lm-eval's own model, in float32."""
    return import_module("lm_eval.models.huggingface").HFLM(
        pretrained=folder,
        device="cpu",
        dtype="float32",
        batch_size=batch_size,
        softmax_dtype=softmax or None,
    )


@lru_cache(maxsize=1)
def their_task(folder: str) -> Any:
    """The task of the YAML file, its data loaded."""
    return (
        import_module("lm_eval.tasks")
        .TaskManager(include_path=folder, include_defaults=False)
        .load(["choices"])
    )


def run_lm_eval(batch_size: int, softmax: str, work: Work) -> Turn:
    """lm-eval, from questions to log-likelihoods and accuracy."""
    evaluate = import_module("lm_eval.evaluator").evaluate
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model, task = their_model(work.model, batch_size, softmax), their_task(work.folder)
    began = now()
    made: Any = evaluate(model, task, limit=work.size, bootstrap_iters=0)
    took = now() - began
    samples = sorted(made["samples"]["choices"], key=lambda sample: sample["doc_id"])
    return _turn(work.size, took, [[float(x[0]) for x in one["filtered_resps"]] for one in samples])


def now() -> np.ndarray:
    """Seconds, and seconds of CPU, which other work on the machine does not add to."""
    return np.array([time.perf_counter(), time.process_time()])


def _turn(count: int, took: np.ndarray, found: Any) -> Turn:
    return Turn(count / float(took[0]), {"seconds": float(took[0]), "CPU seconds": float(took[1])}, found)


def accuracy(found: list[list[float]], questions: list[ChoiceQuestion]) -> float:
    """The share of questions whose labelled choice is the likeliest."""
    right = [row.index(max(row)) == q.label for row, q in zip(found, questions, strict=True)]
    return sum(right) / len(right)


def difference(one: list[list[float]], two: list[list[float]]) -> float:
    """The largest of a log-likelihood."""
    return max(abs(x - y) for a, b in zip(one, two, strict=True) for x, y in zip(a, b, strict=True))


def group_losses(*, repeats: int, quick: bool, model: str = "") -> list[Row]:
    """Groups a second of training steps (without the optimizer) of LoRA, rank 8, float32."""
    with tempfile.TemporaryDirectory() as folder:
        work = Work(model or save_model(folder, quick=quick), folder, GROUPS, "stories:heldout")
        made = side_by_side(STEPS, repeats, apart=not quick, timed=lambda _: (work,), warm=(work,))
    (first, *_), (naive, *_) = made.values()
    assert first.found.keys() == naive.found.keys()
    for turns in made.values():
        for turn in turns:
            largest = max(float(g.abs().max()) for g in naive.found.values())
            off = max(float((turn.found[name] - g).abs().max()) for name, g in naive.found.items())
            turn.notes["largest difference of a gradient, of the largest"] = off / largest
            assert off <= 1e-3 * largest, "the gradients differ"
    notes = {"groups a step": GROUPS, "tokens of a prompt": batch_of(work).inputs["input_ids"].shape[1]}
    return rows_of("group_losses", "groups/s", made, notes)


@lru_cache(maxsize=1)
def trained_model(folder: str) -> CausalModel:
    """With an adapter, whose second matrices are not 0 as they begin."""
    torch.manual_seed(0)
    found = start(Backbone(architecture="llama", checkpoint=folder, lora_rank=RANK), CausalModel)
    for name, weight in found.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.02)
    return found


@lru_cache(maxsize=1)
def batch_of(work: Work) -> Any:
    """The first groups of the embedded ones, one of each class in turn."""
    groups = sorted(read_groups(work.source), key=lambda group: group.advice_class)
    chosen = [groups[i * len(groups) // work.size] for i in range(work.size)]
    tokenizer = load_tokenizer(work.model, "llama")
    return GroupSet(chosen, tokenizer, Encoding().resolved("llama", tokenizer))[list(range(work.size))]


def run_step(naive: bool, work: Work) -> Turn:
    """Loss and gradients of a step."""
    model, batch = trained_model(work.model), batch_of(work)
    model.zero_grad()
    began = now()
    if naive:
        log_prob_BVSE = whole_rows(model, batch.inputs, batch.candidate_BVSE)
    else:
        log_prob_BVSE = model.group_log_probs(batch.inputs, batch.context_BT, batch.candidate_BVSE)
    classes = torch.arange(work.size) % 3
    pushed_BV = torch.zeros(log_prob_BVSE.shape[:2], dtype=torch.long)
    reference = torch.full_like(log_prob_BVSE, 0.5).log()
    GroupLoss(form="log")(
        log_prob_BVSE, classes, pushed_BV=pushed_BV, reference_BVSE=reference
    ).total.backward()
    took = now() - began
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return _turn(work.size, took, gradients)


def whole_rows(model: CausalModel, inputs: dict[str, Tensor], candidate_BVSE: Tensor) -> Tensor:
    """log S from a row for every subject, prompt and all, as transformers reads it: (B, V, S, 1)."""
    rows, places = [], []
    for ids_T, mask_T, span_SE in zip(
        inputs["input_ids"], inputs["attention_mask"], candidate_BVSE.flatten(0, 1), strict=True
    ):
        begin, prompt = int(mask_T.argmax()), int(span_SE[0, 0])
        for first, last in span_SE.tolist():
            rows.append(torch.cat((ids_T[begin:prompt], ids_T[first : last + 1])))
            places.append((prompt - begin, prompt - begin + last + 1 - first))
    ids_RT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask_RT = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    log_prob_RTV = model.encoder(ids_RT, attention_mask=mask_RT).logits.log_softmax(-1)
    means = [
        log_prob_RTV[r, first - 1 : last - 1].gather(1, ids_RT[r, first:last, None]).mean()
        for r, (first, last) in enumerate(places)
    ]
    shape = candidate_BVSE.shape[:3]
    return torch.stack(means).view(shape).log_softmax(-1).unsqueeze(-1)


STEPS = {OURS: partial(run_step, False), "a whole row for each subject": partial(run_step, True)}
