"""Models with answer heads: outputs, padding, decoding against all pairs, and where weights come from."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from models.backbones import Backbone, BackboneError
from models.heads.answer_model import (
    AnswerHeadsName,
    AnswerQAModel,
    RationaleQAModel,
    XLNetQAModel,
    build_answer_model,
)
from models.heads.qa_model import QAModel
from tests.models.tiny import NAMES, answer_model, backbone, model, rows

HEADS: tuple[AnswerHeadsName, ...] = ("rationale", "xlnet")
LOW = torch.finfo(torch.float32).min


def cls_of(name: str, lengths: list[int], width: int = 0, left: bool = False) -> Tensor:
    """Where the classification token stands: XLNet's last, all others' first."""
    width = width or max(lengths)
    return torch.tensor([(width - n if left else 0) + (n - 1 if name == "xlnet" else 0) for n in lengths])


def context_of(inputs: dict[str, Tensor]) -> Tensor:
    """The middle of every row."""
    mask_BT = inputs["attention_mask"]
    rank_BT = mask_BT.cumsum(1) * mask_BT
    return (rank_BT > 2) & (rank_BT < mask_BT.sum(1, keepdim=True) - 1)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_shapes_types_and_padding_logits(name: str, heads: AnswerHeadsName) -> None:
    lengths = [11, 6]
    qa = answer_model(name, heads)
    output = qa(rows(lengths), cls_of(name, lengths))
    assert qa.heads == heads
    assert output.type_BC.shape == (2, 3)
    assert output.hidden_BTD.shape == (2, 11, 32)
    floats = [output.start_BT, output.end_BT, output.type_BC]
    masked = [output.start_BT, output.end_BT]
    if heads == "rationale":
        assert output.number_BN is output.option_BO is None
        masked.append(output.rationale_BT)
    else:
        assert output.rationale_BT is None
        assert (output.number_BN.shape, output.option_BO.shape) == ((2, 12), (2, 3))
        floats += [output.number_BN, output.option_BO]
    assert {value.dtype for value in floats + masked} == {torch.float32}
    for value in masked:
        assert value.shape == (2, 11)
        assert (value[1, 6:] == LOW).all()
        assert (value[1, :6] > LOW).all()
    for found, expected in zip(qa(rows(lengths)), output, strict=True):
        assert found is expected is None or torch.equal(found, expected)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(
    ("name", "left"),
    [("bert", False), ("roberta", False), ("roberta", True), ("xlnet", False), ("xlnet", True)],
)
@torch.no_grad()
def test_no_output_depends_on_padding_or_on_neighbours(name: str, left: bool, heads: AnswerHeadsName) -> None:
    qa, lengths = answer_model(name, heads), [14, 9, 5]
    inputs, cls_B = rows(lengths, width=30, left=left), cls_of(name, lengths, 30, left)
    context_BT = context_of(inputs)
    whole, answers = qa(inputs, cls_B), qa.predict_answers(inputs, context_BT, context_BT, cls_B, 4)
    for b, length in enumerate(lengths):
        shift = 30 - length if left else 0
        at = slice(shift, shift + length)
        row = {key: value[b : b + 1, at] for key, value in inputs.items()}
        cls, context = cls_B[b : b + 1] - shift, context_BT[b : b + 1, at]
        for found, expected in zip(whole, qa(row, cls), strict=True):
            if expected is not None:
                per_token = found.dim() > 1 and found.shape[1] == 30
                found = found[b : b + 1, at] if per_token else found[b : b + 1]
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
        alone = qa.predict_answers(row, context, context, cls, 4)
        alone = alone._replace(start_B=alone.start_B + shift, end_B=alone.end_B + shift)
        for found, expected in zip(answers, alone, strict=True):
            if expected is not None:
                torch.testing.assert_close(found[b : b + 1], expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_hidden_states_end_with_those_of_forward(name: str) -> None:
    inputs = rows([9, 6])
    for qa in (model(name), answer_model(name, "rationale")):
        states = qa.hidden_states(inputs)
        assert len(states) == qa.config.num_hidden_layers + 1
        assert {state.shape for state in states} == {(2, 9, 32)}
        torch.testing.assert_close(states[-1], qa(inputs).hidden_BTD)
        # The first knows its own word only: a change elsewhere leaves it alone.
        changed = inputs | {"input_ids": inputs["input_ids"].clone()}
        changed["input_ids"][0, 4] = 7 if inputs["input_ids"][0, 4] != 7 else 8
        torch.testing.assert_close(qa.hidden_states(changed)[0][0, :4], states[0][0, :4])


def brute_rationale(
    output: tuple[Tensor, ...], b: int, context: Tensor, starts: Tensor, longest: int
) -> tuple[float, int, int]:
    start_BT, end_BT = output[0], output[1]
    found = (-math.inf, -1, -1)
    for i in range(len(context)):
        for j in range(i, min(i + longest, len(context))):
            if context[i] and context[j] and starts[i]:
                found = max(found, (float(start_BT[b, i] + end_BT[b, j]), i, j))
    return found


def brute_xlnet(
    qa: AnswerQAModel, row: dict[str, Tensor], cls: int, context: Tensor, starts: Tensor, longest: int
) -> tuple[float, int, int]:
    """All pairs of the five best starts and ends, by one forward pass for each start."""
    answerable = context.clone()
    answerable[cls] = True
    cls_B, found = torch.tensor([cls]), (-math.inf, -1, -1)
    start = qa(row, cls_B, torch.tensor([0]), answerable[None]).start_BT[0].log_softmax(-1)
    for i in start.argsort(descending=True)[:5].tolist():
        end = qa(row, cls_B, torch.tensor([i]), answerable[None]).end_BT[0].log_softmax(-1)
        for j in end.argsort(descending=True)[:5].tolist():
            if context[i] and context[j] and starts[i] and i <= j < i + longest:
                found = max(found, (float(start[i] + end[j]), i, j))
    return found


@pytest.mark.parametrize(("name", "heads"), [("bert", "rationale"), ("xlnet", "xlnet"), ("bert", "xlnet")])
@torch.no_grad()
def test_predicted_answers_equal_a_search_over_all_pairs(name: str, heads: AnswerHeadsName) -> None:
    lengths, some = [16, 11, 7, 16], 0
    for seed in range(6):
        qa, inputs, cls_B = answer_model(name, heads, seed), rows(lengths, seed), cls_of(name, lengths)
        context_BT = context_of(inputs)
        starts_BT = torch.rand(context_BT.shape, generator=torch.Generator().manual_seed(seed)) < 0.7
        context_BT[3] = False
        longest = 1 + seed
        found = qa.predict_answers(inputs, context_BT, starts_BT, cls_B, longest)
        output = qa(inputs, cls_B, answerable_BT=context_BT | (torch.arange(16) == cls_B[:, None]))
        for b in range(4):
            row = {key: value[b : b + 1] for key, value in inputs.items()}
            where = (context_BT[b], starts_BT[b], longest)
            if heads == "rationale":
                score, i, j = brute_rationale(output, b, *where)
            else:
                score, i, j = brute_xlnet(qa, row, int(cls_B[b]), *where)
            assert float(found.score_B[b]) == pytest.approx(score, abs=1e-4)
            if score > -math.inf:
                assert (int(found.start_B[b]), int(found.end_B[b])) == (i, j)
                some += 1
        if heads == "rationale":
            assert torch.equal(found.type_BC, 2 * output.type_BC)
            assert found.number_B is found.number_score_B is found.option_B is found.option_score_B is None
            continue
        torch.testing.assert_close(found.type_BC, output.type_BC.sigmoid())
        for kind_B, score_B, logits in (
            (found.number_B, found.number_score_B, output.number_BN),
            (found.option_B, found.option_score_B, output.option_BO),
        ):
            for b, probabilities in enumerate(logits.softmax(-1).tolist()):
                assert int(kind_B[b]) == max(range(1, len(probabilities)), key=probabilities.__getitem__)
                assert float(score_B[b]) == pytest.approx(probabilities[int(kind_B[b])], abs=1e-6)
    assert some > 5


@torch.no_grad()
def test_rows_narrower_than_the_beam() -> None:
    qa, inputs = answer_model("xlnet", "xlnet"), rows([3])
    context_BT = torch.tensor([[True, False, False]])
    found = qa.predict_answers(inputs, context_BT, context_BT, torch.tensor([2]), 16)
    assert (int(found.start_B), int(found.end_B)) == (0, 0)


@pytest.mark.parametrize("heads", HEADS)
@torch.no_grad()
def test_plain_spans_work_on_both(heads: AnswerHeadsName) -> None:
    name = "xlnet" if heads == "xlnet" else "bert"
    qa, lengths = answer_model(name, heads), [12, 8]
    inputs, cls_B = rows(lengths), cls_of(name, lengths)
    context_BT = context_of(inputs)
    found = qa.predict_spans(inputs, context_BT, cls_B, 3)
    if heads == "rationale":
        output = qa(inputs)
        start_BT, end_BT, null_end_BT = output.start_BT, output.end_BT, output.end_BT
    else:
        answerable_BT = context_BT | (torch.arange(12) == cls_B[:, None])
        start_BT = qa(inputs, cls_B, cls_B, answerable_BT).start_BT.log_softmax(-1)
        likely_B = start_BT.masked_fill(~context_BT, -math.inf).argmax(1)
        end_BT, null_end_BT = (
            qa(inputs, cls_B, given_B, answerable_BT).end_BT.log_softmax(-1) for given_B in (likely_B, cls_B)
        )
    for b in range(2):
        spans = [(i, j) for i in range(12) for j in range(i, min(i + 3, 12)) if context_BT[b, [i, j]].all()]
        i, j = max(spans, key=lambda at: float(start_BT[b, at[0]] + end_BT[b, at[1]]))
        assert (int(found.start_B[b]), int(found.end_B[b])) == (i, j)
        assert float(found.score_B[b]) == pytest.approx(float(start_BT[b, i] + end_BT[b, j]), abs=1e-5)
        null = float(start_BT[b, cls_B[b]] + null_end_BT[b, cls_B[b]])
        assert float(found.null_B[b]) == pytest.approx(null, abs=1e-5)


@torch.no_grad()
def test_group_scores_and_types_are_one_distribution() -> None:
    """Over every single token as a subject, and yes, no, unknown, probabilities add up to 1."""
    qa, lengths = answer_model("bert", "rationale"), [6, 6, 4, 6]
    inputs = rows(lengths)
    candidate_BVSE = torch.arange(6).view(1, 1, 6, 1).expand(1, 4, 6, 2)
    log_prob_BVSE = qa.group_log_probs(inputs, candidate_BVSE)
    output = qa(inputs)
    for e, logits_BT in enumerate((output.start_BT, output.end_BT)):
        types = output.type_BC.exp().sum(1) / (output.type_BC.exp().sum(1) + logits_BT.exp().sum(1))
        torch.testing.assert_close(log_prob_BVSE[0, :, :, e].exp().sum(-1) + types, torch.ones(4))
    assert (types > 0.01).all()


@torch.no_grad()
def test_xlnet_group_scores_take_each_subjects_own_start() -> None:
    qa, inputs = answer_model("xlnet", "xlnet"), rows([9, 7, 8, 9])
    candidate_BVSE = torch.randint(0, 6, (1, 4, 2, 2), generator=torch.Generator().manual_seed(0))
    found = qa.group_log_probs(inputs, candidate_BVSE)
    for v in range(4):
        for s in range(2):
            start, end = candidate_BVSE[0, v, s].tolist()
            output = qa(inputs, start_B=torch.full((4,), start))
            assert float(found[0, v, s, 0]) == pytest.approx(float(output.start_BT[v].log_softmax(-1)[start]))
            expected = float(output.end_BT[v].log_softmax(-1)[end])
            assert float(found[0, v, s, 1]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("heads", HEADS)
def test_every_head_learns(heads: AnswerHeadsName) -> None:
    qa = build_answer_model(backbone("bert"), heads)
    output = qa(rows([12, 12]), torch.tensor([0, 0]), torch.tensor([3, 4]))
    scores = [value for value in output[:-1] if value is not None]
    sum(value.log_softmax(-1)[:, 1].sum() for value in scores).backward()  # type: ignore[union-attr]
    without = [key for key, p in qa.named_parameters() if p.grad is None]
    assert without == []
    assert all(p.grad.isfinite().all() and p.grad.any() for p in qa.answer_heads.parameters())  # type: ignore[operator, union-attr]


def test_the_seed_decides_the_new_heads() -> None:
    for heads, kind in (("rationale", RationaleQAModel), ("xlnet", XLNetQAModel)):
        one, same, other = (answer_model("bert", heads, seed) for seed in (0, 0, 1))  # type: ignore[arg-type]
        assert isinstance(one, kind)
        values = [
            torch.cat([p.flatten() for p in qa.answer_heads.parameters()])  # type: ignore[operator, union-attr]
            for qa in (one, same, other)
        ]
        assert torch.equal(values[0], values[1])
        assert not torch.equal(values[0], values[2])
    assert build_answer_model(backbone("bert"), "rationale").training


@torch.no_grad()
def test_a_folder_gives_encoder_span_head_and_pooler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plain, inputs = model("bert"), rows([9])
    plain.to_pretrained().save_pretrained(tmp_path / "qa")
    folder = Backbone(architecture="bert", checkpoint=str(tmp_path / "qa"))
    qa = build_answer_model(folder, "rationale", cls_source="pooler").eval()
    assert torch.equal(qa(inputs).start_BT, plain(inputs).start_BT)
    assert "answer heads (rationale) start random" in caplog.text
    assert "has no pooler" in caplog.text
    only = build_answer_model(folder, "xlnet").eval()
    torch.testing.assert_close(only(inputs).start_BT, plain(inputs).start_BT)

    encoder = AutoModel.from_config(plain.config)  # with a pooler, as pretrained encoders come
    encoder.save_pretrained(tmp_path / "encoder")
    folder = Backbone(architecture="bert", checkpoint=str(tmp_path / "encoder"))
    qa = build_answer_model(folder, "rationale", cls_source="pooler")
    assert isinstance(qa, RationaleQAModel)
    assert qa.answer_heads.pooler is not None
    assert torch.equal(qa.answer_heads.pooler.weight, encoder.pooler.dense.weight)
    with pytest.raises(BackboneError, match=r"no\.such"):
        build_answer_model(Backbone(architecture="bert", checkpoint="no.such/folder"), "rationale")


def test_a_plain_model_says_so() -> None:
    assert QAModel.heads == "span"
    assert model("bert").head_options == {}
    assert answer_model("bert", "rationale", cls_source="pooler").head_options == {"cls_source": "pooler"}
