"""Numbers of the confusion probes against worked examples, naive loops and their limits."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from interventune.metrics import confusion as of

SIZES = st.tuples(st.integers(1, 9), st.integers(2, 6))
logits = arrays(np.float64, SIZES, elements=st.floats(-20, 20))


def test_numbers_of_the_oracle_file(oracle: Path) -> None:
    toy = json.loads((oracle / "probes_toy.json").read_text())
    pre, post = toy["pre"], toy["post_noquestion"]
    label = np.array(pre["labels"])
    pre_c, post_c = (softmax(np.array(part["logits"]), axis=1) for part in (pre, post))
    assert pre_c == pytest.approx(np.array(pre["conf"]), abs=1e-14)
    own = of.at_label(post_c, label)
    assert own == pytest.approx(post["conf_pseudo"], abs=1e-14)
    assert post_c.var(1) == pytest.approx(post["def1_variance_per_instance_ddof0"])
    assert of.t_against(own, 0.5) == pytest.approx(post["ttest_conf_vs_1_over_n"][1])
    lost = of.at_label(pre_c, label) - own
    assert of.t_against(lost, 0) == pytest.approx(post["paired_t_pre_vs_post"][1])
    nra = toy["no_right_answer"]
    for part, others, own_slot in (("pre", "ANC", "RAC"), ("post", "ANC'", "SAC")):
        found = of.others_less_own(np.array(nra[part]), np.array(nra["slot"]))
        assert found == pytest.approx(np.array(nra[others]) - np.array(nra[own_slot]))


@given(logits)
def test_ranks_match_a_stable_sort_and_ignore_the_order_of_choices(logit_NC: np.ndarray) -> None:
    N, C = logit_NC.shape
    label = np.arange(N) % C
    order = np.random.default_rng(N).permutation(C)
    moved_NC, moved = logit_NC[:, order], np.argsort(order)[label]
    before, after = softmax(logit_NC, axis=1), softmax(moved_NC, axis=1)
    assert of.at_label(after, moved) == pytest.approx(of.at_label(before, label))
    if all(len(set(row)) == C for row in logit_NC.round(6).tolist()):  # ties go by place
        assert of.ranks(after, moved).tolist() == of.ranks(before, label).tolist()
    conf_NC = softmax(logit_NC.round(0), axis=1)
    for row, y, rank in zip(conf_NC, label, of.ranks(conf_NC, label), strict=True):
        order = sorted(range(C), key=lambda k: (-row[k], k))
        assert order.index(y) == rank
        assert (rank == 0) == (row.argmax() == y)


def test_p_is_nan_where_there_is_no_test() -> None:
    assert math.isnan(of.t_against(np.array([0.5]), 0))
    assert math.isnan(of.t_against(np.full(4, 0.5), 0.2))
