"""Every encoder with all heads: padding, gradients, groups, decoding; heads by naive loops."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from interventune.models.heads.answers import RationaleHeads, XLNetAnswerHeads
from interventune.models.heads.span import Pooling, SpanModel
from interventune.models.loading import start
from tests.models.tiny import MODELS, backbone, call, cls_of, context_of, model, rows, tensors

LOW = torch.finfo(torch.float32).min
ANY_SIDE = [case for case in MODELS if case[0] in ("roberta", "xlnet", "modernbert")]
"""Those that do not count positions from the first column: padding may stand on either side."""


@pytest.mark.parametrize(
    ("name", "heads", "left"),
    [*((*case, False) for case in MODELS), *((*case, True) for case in ANY_SIDE)],
)
@torch.no_grad()
def test_no_output_depends_on_padding_or_on_neighbours(name: str, heads: str, left: bool) -> None:
    built, lengths = model(name, heads), [14, 9, 6]
    inputs = rows(lengths, width=30, left=left)
    whole = tensors(built(*call(built, inputs)))
    assert all(value.dtype == torch.float32 for value in whole)
    if heads != "choice":
        mask_BT = inputs["attention_mask"]
        assert torch.equal(built.cls_positions(inputs), cls_of(name, mask_BT))
        logits = [value for value in whole if value.shape == mask_BT.shape]
        assert len(logits) == 2 + (heads == "rationale")
        assert all((value_BT[mask_BT == 0] == LOW).all() for value_BT in logits)
    for b, length in enumerate(lengths):
        at = slice(30 - length, 30) if left else slice(0, length)
        one = {key: value[b : b + 1, at] for key, value in inputs.items()}
        for actual, expected in zip(whole, tensors(built(*call(built, one))), strict=True):
            if heads == "choice":
                actual = actual[:, b : b + 1]
            else:
                per_token = actual.dim() > 1 and actual.shape[1] == 30
                actual = actual[b : b + 1, at] if per_token else actual[b : b + 1]
            torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("heads", ["span", "rationale"])
@torch.no_grad()
def test_group_scores_are_those_of_single_rows(heads: str) -> None:
    """Of heads for answer types out of one distribution over yes, no, unknown and all positions."""
    qa, inputs = model("bert", heads), rows([10, 8, 9, 7, 6, 10, 8, 9])
    candidate_BVSE = torch.randint(0, 6, (2, 4, 2, 2), generator=torch.Generator().manual_seed(0))
    actual = qa.group_log_probs(inputs, context_of(inputs), candidate_BVSE)
    output = qa(*call(qa, inputs))
    types_B = output.type_BC.exp().sum(1) if heads == "rationale" else torch.zeros(8)
    for e, logits_BT in enumerate((output.start_BT, output.end_BT)):
        total_B = logits_BT.exp().sum(1) + types_B
        for b, v, s in product(range(2), range(4), range(2)):
            row = 4 * b + v
            expected = logits_BT[row, candidate_BVSE[b, v, s, e]] - total_B[row].log()
            torch.testing.assert_close(actual[b, v, s, e], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_xlnet_group_scores_take_each_subjects_own_start() -> None:
    """Out of the softmax of training: the context and the classification token, nothing else."""
    qa, inputs = model("xlnet", "xlnet"), rows([9, 7, 8, 9])
    context_BT = context_of(inputs)
    candidate_BVSE = torch.randint(3, 6, (1, 4, 2, 2), generator=torch.Generator().manual_seed(0))
    actual = qa.group_log_probs(inputs, context_BT, candidate_BVSE)
    for v, s in product(range(4), range(2)):
        start, end = candidate_BVSE[0, v, s].tolist()
        output = qa(inputs, context_BT, torch.full((4,), start))
        assert int((output.start_BT[v] > LOW).sum()) == int(context_BT[v].sum()) + 1
        logs = output.start_BT[v].log_softmax(-1)[start], output.end_BT[v].log_softmax(-1)[end]
        assert actual[0, v, s].tolist() == pytest.approx([*map(float, logs)], abs=1e-5)


@torch.no_grad()
def test_only_the_story_is_tagged_unless_all_is_asked_for() -> None:
    """Logits of the other tokens are the lowest number."""
    inputs = rows([12, 9])
    context_BT, tokens_BT = context_of(inputs), inputs["attention_mask"] != 0
    for tagged, expected_BT in (("story", context_BT), ("all", tokens_BT)):
        qa = model("bert", "rationale", tagged=tagged)
        assert torch.equal(qa(*call(qa, inputs)).rationale_BT > LOW, expected_BT)


def brute(qa: Any, row: tuple[Any, ...], starts: Tensor, longest: int) -> tuple[float, int, int]:
    """The best span of all pairs; with XLNet's heads, of five starts and five ends of each."""
    context = context_of(row[0])[0]
    tokens, best = range(len(context)), (-math.inf, -1, -1)
    output = qa(*row)
    start, ends = output.start_BT[0], dict.fromkeys(tokens, output.end_BT[0])
    if qa.heads == "xlnet":
        start = start.log_softmax(-1)
        firsts = start.argsort(descending=True)[:5].tolist()
        ends = {i: qa(*row, torch.tensor([i])).end_BT[0].log_softmax(-1) for i in firsts}
    for i, end in ends.items():
        lasts = end.argsort(descending=True)[: 5 if qa.heads == "xlnet" else None].tolist()
        for j in lasts:
            if context[i] and context[j] and starts[i] and i <= j < i + longest:
                best = max(best, (float(start[i] + end[j]), i, j))
    return best


@pytest.mark.parametrize("case", ["bert span", "bert rationale", "xlnet xlnet", "bert xlnet"])
@torch.no_grad()
def test_predicted_answers_equal_a_search_over_all_pairs(case: str) -> None:
    lengths, found = [16, 11, 7, 3], 0  # the last has no context
    for seed in range(6):
        qa = model(*case.split(), seed)
        inputs = rows(lengths, seed=seed)
        output, context_BT = qa(*call(qa, inputs)), context_of(inputs)
        qa.max_answer_tokens = longest = 1 + seed
        if qa.heads == "span":
            starts_BT, actual = context_BT, qa.predict_spans(inputs, context_BT)
            null_B = output.start_BT[:, 0] + output.end_BT[:, 0]
            torch.testing.assert_close(actual.null_B, null_B)
        else:
            chosen = torch.Generator().manual_seed(seed)
            starts_BT = torch.rand(context_BT.shape, generator=chosen) < 0.7
            actual = qa.predict_answers(inputs, context_BT, starts_BT)
            xlnet = qa.heads == "xlnet"
            type_BC = output.type_BC.sigmoid() if xlnet else 2 * output.type_BC
            torch.testing.assert_close(actual.type_BC, type_BC)
            assert (actual[4:] == (None,) * 4) != xlnet  # numbers and options
        for b, length in enumerate(lengths):
            row = call(qa, {key: value[b : b + 1, :length] for key, value in inputs.items()})
            score, i, j = brute(qa, row, starts_BT[b], longest)
            assert float(actual.score_B[b]) == pytest.approx(score, abs=1e-4)
            if score > -math.inf:
                assert (int(actual.start_B[b]), int(actual.end_B[b])) == (i, j)
                found += 1
    assert found > 5


@torch.no_grad()
def test_how_long_rows_may_be() -> None:
    short = start(backbone("roberta", config={"max_position_embeddings": 66}), SpanModel)
    assert [qa.max_tokens for qa in (model("bert"), model("xlnet"), short)] == [512, None, 66 - 2]


@pytest.mark.parametrize("pooling", ["masked", "parity"])
@torch.no_grad()
def test_logits_of_choices_are_of_mean_states(pooling: Pooling) -> None:
    """Of the tokens, or of all positions of a row."""
    lengths = [12, 7, 9, 5, 11, 8]
    built, inputs = model("bert", "choice", pooling=pooling), rows(lengths, width=16)
    expected = []
    for state_TD, length in zip(built.hidden_states(inputs)[-1], lengths, strict=True):
        mean_D = state_TD[: length if pooling == "masked" else 16].mean(0)
        expected.append(mean_D @ built.choice_head.weight[0] + built.choice_head.bias[0])
    logits_BN = built({key: value.view(2, 3, -1) for key, value in inputs.items()})
    torch.testing.assert_close(logits_BN, torch.stack(expected).view(2, 3))


@pytest.mark.parametrize("heads", ["span", "rationale", "xlnet", "choice"])
def test_logits_are_float32_under_bf16_and_gradients_finite(heads: str) -> None:
    built = model("bert", heads)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = tensors(built(*call(built, rows([9, 5]))))
    logits = [output for output in outputs if output.shape[-1] != 32]  # hidden states
    assert {output.dtype for output in logits} == {torch.float32}
    only_cast = torch.equal(logits[0], logits[0].bfloat16().float())
    assert heads != "choice" or not only_cast
    sum(output.clamp(min=-100).sum() for output in logits).backward()  # type: ignore[union-attr]
    assert all(p.grad.isfinite().all() for p in built.parameters() if p.grad is not None)


B, T, D = 3, 7, 8
MASK = torch.tensor([[1] * 7, [1] * 5 + [0] * 2, [0] * 3 + [1] * 4])
CLS = torch.tensor([0, 0, 6])


def loud(module: nn.Module) -> tuple[Any, Tensor]:
    """Heads with weights large enough that every input matters, and hidden states (B, T, D)."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return module.eval(), torch.randn(B, T, D, generator=generator)


def close(actual: Tensor, expected: dict[int, Tensor]) -> None:
    """Logits of tokens; the lowest number at those without."""
    numbers = [float(expected.get(t, LOW)) for t in range(T)]
    assert actual.tolist() == pytest.approx(numbers, abs=1e-4)


@torch.no_grad()
def test_rationale_heads_equal_the_equations() -> None:
    heads, h = loud(RationaleHeads(D))
    type_BC, rationale_BT = heads(h, MASK != 0, CLS)
    V, u = heads.rationale[0].weight, heads.rationale[2].weight[0]
    W2, w1 = heads.attention[0].weight, heads.attention[2].weight[0]
    for b in range(B):
        logit = {t: u @ (V @ h[b, t]).relu() for t in range(T) if MASK[b, t]}
        tagged = {t: logit[t].sigmoid() * h[b, t] for t in logit}
        weight = torch.stack([w1 @ (W2 @ state).relu() for state in tagged.values()]).softmax(0)
        pooled = sum((a * x for a, x in zip(weight, tagged.values(), strict=True)), torch.zeros(D))
        z = torch.cat((pooled, h[b, CLS[b]]))
        expected = torch.cat((heads.yes_no.weight @ z, heads.unknown.weight @ z))
        torch.testing.assert_close(type_BC[b], expected)
        close(rationale_BT[b], logit)


@torch.no_grad()
def test_xlnet_heads_equal_the_equations() -> None:
    heads, h = loud(XLNetAnswerHeads(D))
    allowed_BT = (MASK != 0) & (torch.arange(T) != 4)
    start_BK = torch.tensor([[0, 3], [1, 2], [3, 6]])
    start_BT = heads.start_logits(h, allowed_BT)
    end_BKT = heads.end_logits(h, start_BK, start_BT)
    kinds = heads.kind_logits(h, start_BT, CLS)
    assert [kind.shape[1] for kind in kinds] == [3, 12, 3]
    for b in range(B):
        allowed = [t for t in range(T) if allowed_BT[b, t]]
        start = {t: heads.start.weight[0] @ h[b, t] + heads.start.bias[0] for t in allowed}
        weight = torch.stack(list(start.values())).softmax(0)
        mean = sum((p * h[b, t] for p, t in zip(weight, start, strict=True)), torch.zeros(D))
        state = torch.cat((mean, h[b, CLS[b]]))
        v = (heads.answer_state.weight @ state + heads.answer_state.bias).tanh()
        for actual, layer in zip(kinds, (heads.types, heads.number, heads.option), strict=True):
            torch.testing.assert_close(actual[b], layer.weight @ v + layer.bias)
        close(start_BT[b], start)
        for k, first in enumerate(start_BK[b]):
            end = {}
            for t in allowed:
                pair = torch.cat((h[b, t], h[b, first]))
                state = (heads.end_state.weight @ pair + heads.end_state.bias).tanh()
                state = layer_norm(state, (D,), heads.end_norm.weight, heads.end_norm.bias)
                end[t] = heads.end.weight[0] @ state + heads.end.bias[0]
            close(end_BKT[b, k], end)
