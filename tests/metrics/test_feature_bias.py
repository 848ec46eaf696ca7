"""Calibration and the mean over strata against worked examples and the authors' numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from interventune.metrics.feature_bias import calibrated, content_free, stratum_weights


def test_calibration_leaves_out_texts_without_a_label() -> None:
    free = content_free(np.array([[0.2, 0.1], [0.0, 0.9], [0.1, 0.3]]))
    np.testing.assert_allclose(free, np.array([0.3, 0.4]) / 0.7)
    with pytest.raises(ValueError, match="content-free"):
        content_free(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_weighted_shares_are_means_of_the_means_of_strata() -> None:
    weight_N = stratum_weights(np.array([7.0, 3.0, 7.0, 7.0, 7.0]))
    assert np.average([1, 1, 0, 0, 0], weights=weight_N) == pytest.approx((1 / 4 + 1) / 2)


def test_published_examples(oracle: Path) -> None:
    toy = json.loads((oracle / "probes_toy.json").read_text())
    numbers = toy["C_h_acc"]
    ones = {cell: np.array(shares) / 100 for cell, shares in numbers["freq1"].items()}
    for name, in_1_0 in (("h1", ones["1_0"]), ("h2", 1 - ones["1_0"])):
        share_S = np.concatenate([in_1_0, 1 - ones["0_1"] if name == "h1" else ones["0_1"]])
        found = np.average(share_S, weights=stratum_weights(np.arange(len(share_S), dtype=float)))
        assert 100 * found == pytest.approx(numbers[f"{name}_ambig"])
    example = toy["C_calibration"]
    score = calibrated(np.array([example["p(0,1)"]]), np.array(example["content_free"]))
    np.testing.assert_allclose(score[0], example["scores"])
    assert score.argmax() == example["cal_pred"]


def test_the_authors_predictions(shared: Path) -> None:
    runs = json.loads((shared / "oracle/protocols/ambig_runs.json").read_text())
    for run in runs.values():
        texts = (run["empty_label_probs"], *run["raw_label_probs"])
        free, *rows = (np.array([*map(float, text.strip("[]").split())]) for text in texts)
        labels = calibrated(np.array(rows), free).argmax(1)
        # Of split 1_0, where 1 is right.
        assert [str(label) for label in labels] == run["em_per_item"]
