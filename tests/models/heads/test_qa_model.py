"""Every architecture of the table: forward pass, padding, groups, and the way back to transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from models.heads.qa_model import QAModel
from tests.models.tiny import NAMES, backbone, model, rows

ANY_SIDE = ("roberta", "xlnet", "modernbert")
"""Those that do not count absolute positions from the first column: padding may stand on either side."""


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types(name: str) -> None:
    output = model(name)(rows([11, 6]))
    assert output.start_BT.shape == output.end_BT.shape == (2, 11)
    assert output.hidden_BTD.shape == (2, 11, 32)
    assert output.start_BT.dtype == torch.float32
    assert (output.start_BT[1, 6:] == torch.finfo(torch.float32).min).all()
    assert torch.isfinite(output.hidden_BTD).all()


@pytest.mark.parametrize(
    ("name", "left"), [*((name, False) for name in NAMES), *((name, True) for name in ANY_SIDE)]
)
@torch.no_grad()
def test_logits_do_not_depend_on_padding_or_on_neighbours(name: str, left: bool) -> None:
    qa, lengths = model(name), [14, 9, 3]
    whole = qa(rows(lengths, width=40, left=left))
    for b, length in enumerate(lengths):
        inputs = {key: value[b : b + 1] for key, value in rows(lengths, left=left).items()}
        at = slice(14 - length, 14) if left else slice(0, length)
        alone = qa({key: value[:, at] for key, value in inputs.items()})
        at = slice(40 - length, 40) if left else slice(0, length)
        for found, expected in zip(whole, alone, strict=True):
            torch.testing.assert_close(found[b : b + 1, at], expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(
            whole.start_BT[b].softmax(-1)[at], alone.start_BT[0].softmax(-1), atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_model_is_transformers_own(name: str, tmp_path: Path) -> None:
    """Same logits as transformers' class before saving, and after from_pretrained."""
    qa, inputs = model(name), rows([12, 12])
    expected = qa(inputs)
    if not qa.segments:
        del inputs["token_type_ids"]
    own = qa.to_pretrained()
    own.save_pretrained(tmp_path)
    for theirs in (own.eval(), AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()):
        output = theirs(**inputs)
        torch.testing.assert_close(output.start_logits, expected.start_BT, atol=0, rtol=0)
        torch.testing.assert_close(output.end_logits, expected.end_BT, atol=0, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_to_pretrained_shares_the_weights(name: str) -> None:
    qa = model(name)
    own = {id(parameter) for parameter in qa.to_pretrained().parameters()}
    assert own == {id(parameter) for parameter in qa.parameters()}


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_but_a_pooler_learns(name: str) -> None:
    qa = QAModel.from_backbone(backbone(name)).train()
    output = qa(rows([12, 12]))
    (output.start_BT.log_softmax(-1)[:, 3].sum() + output.end_BT.log_softmax(-1)[:, 5].sum()).backward()
    without = [key for key, p in qa.named_parameters() if p.grad is None]
    # XLNet's mask embedding serves its pre-training only.
    assert all("pooler" in key or key.endswith("mask_emb") for key in without)
    assert all(torch.isfinite(p.grad).all() for p in qa.parameters() if p.grad is not None)


@torch.no_grad()
def test_group_scores_are_those_of_single_rows() -> None:
    qa = model("bert")
    inputs = rows([10, 8, 9, 7, 6, 10, 8, 9])
    candidate_BVSE = torch.randint(0, 6, (2, 4, 2, 2), generator=torch.Generator().manual_seed(0))
    found = qa.group_log_probs(inputs, candidate_BVSE)
    assert found.shape == (2, 4, 2, 2)
    output = qa(inputs)
    for b in range(2):
        for v in range(4):
            for s in range(2):
                for e, logits_BT in enumerate((output.start_BT, output.end_BT)):
                    expected = logits_BT[4 * b + v].log_softmax(-1)[candidate_BVSE[b, v, s, e]]
                    torch.testing.assert_close(found[b, v, s, e], expected)


@torch.no_grad()
def test_predicted_spans_and_the_score_of_no_answer() -> None:
    qa, inputs = model("bert"), rows([10, 7])
    context_BT = torch.zeros(2, 10, dtype=torch.bool)
    context_BT[:, 3:6] = True
    cls_B = torch.tensor([0, 2])
    found = qa.predict_spans(inputs, context_BT, cls_B, max_answer_tokens=2)
    output = qa(inputs)
    for b in range(2):
        spans = [(i, j) for i in range(3, 6) for j in range(i, min(i + 2, 6))]
        best = max(spans, key=lambda at: float(output.start_BT[b, at[0]] + output.end_BT[b, at[1]]))
        assert (int(found.start_B[b]), int(found.end_B[b])) == best
        assert found.score_B[b] == output.start_BT[b, best[0]] + output.end_BT[b, best[1]]
        assert found.null_B[b] == output.start_BT[b, cls_B[b]] + output.end_BT[b, cls_B[b]]
