"""Several checkpoints side by side: cosine and CKA between them, layer by layer."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tests.evaluation.checkpoints import save_folder, told
from tests.evaluation.protocols.shift.shift_oracle import DATA, STORIES, Naive, built, cosines, related, shift


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three related BERTs and an XLNet."""
    root = tmp_path_factory.mktemp("room")
    related(root)
    save_folder(root / "xlnet", "xlnet")
    return root


def naive_cka(x_ND: np.ndarray, y_ND: np.ndarray) -> float:
    """By centred Gram matrices: the other way to write it."""
    n = len(x_ND)
    centre = np.eye(n) - 1 / n
    k, m = centre @ x_ND @ x_ND.T @ centre, centre @ y_ND @ y_ND.T @ centre
    return float((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))


def test_three_checkpoints_are_compared_with_the_first_by_layer(room: Path, tmp_path: Path) -> None:
    named = [f"{name}={room / name}" for name in "abc"]
    report = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts_r", "--batch-size", "5")
    assert {"between.png", "histogram_ts_r.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    text = (tmp_path / "out" / "report.md").read_text()
    assert "## Between checkpoints, by layer: CLS cosine\n\n| layer | a – b | a – c |" in text
    states = {name: [Naive(room / name, "bert").states(story) for story in STORIES] for name in "abc"}
    for other in "bc":
        for layer in range(3):
            pairs = list(zip(states["a"], states[other], strict=True))
            key = f"layer_{layer:02d}"
            cls_cosines = [cosines(x, y)[layer] for (x, _), (y, _) in pairs]
            token_cosines = [cosines(x[at], y[at])[layer] for (_, x), (_, y) in pairs for at in x]
            assert report[f"between/a_{other}/cls/{key}/cosine"] == pytest.approx(
                fmean(cls_cosines), abs=1e-5
            )
            found = report[f"between/a_{other}/tokens/{key}/cosine"]
            assert found == pytest.approx(fmean(token_cosines), abs=1e-5)
            # At most 32 tokens of a story take part: these have fewer than 32 or an even choice of 32.
            chosen = [[list(x)[i] for i in evenly(len(x))] for _, x in states["a"]]
            x_ND, y_ND = (
                np.array(
                    [
                        places[at][layer].numpy()
                        for (_, places), c in zip(side, chosen, strict=True)
                        for at in c
                    ]
                )
                for side in (states["a"], states[other])
            )
            found = report[f"between/a_{other}/tokens/{key}/cka"]
            assert found == pytest.approx(naive_cka(x_ND, y_ND), abs=1e-5)
            if layer == 0:  # the same for every story
                assert report[f"between/a_{other}/cls/{key}/cka"] is None
            else:
                x_ND, y_ND = (np.array([cls[layer].numpy() for cls, _ in states[n]]) for n in ("a", other))
                found = report[f"between/a_{other}/cls/{key}/cka"]
                assert found == pytest.approx(naive_cka(x_ND, y_ND), abs=1e-5)


def evenly(count: int, most: int = 32) -> list[int]:
    step = (count - 1) / (most - 1)
    return list(range(count)) if count <= most else [round(i * step) for i in range(most)]


def test_a_checkpoint_is_equal_to_itself_and_its_neighbour_is_the_one_before(
    room: Path, tmp_path: Path
) -> None:
    named = [f"one={room / 'a'}", f"again={room / 'a'}", f"b={room / 'b'}"]
    flags = ("--variants", "ts", "--between", "consecutive")
    report = shift(tmp_path / "out", "--checkpoint", *named, *flags)
    between = {key: value for key, value in report.items() if key.startswith("between/")}
    assert {key.split("/")[1] for key in between} == {"one_again", "again_b"}
    same = [value for key, value in between.items() if "one_again" in key and value is not None]
    assert same == pytest.approx([1] * 11, abs=1e-6)
    assert min(v for key, v in between.items() if "again_b" in key and v is not None) < 0.999


def test_models_of_other_depths_and_widths_are_compared_as_far_as_they_go(tmp_path: Path) -> None:
    paths = {
        "base": built(tmp_path / "base.ckpt"),
        "deep": built(tmp_path / "deep.ckpt", num_hidden_layers=4),
        "wide": built(tmp_path / "wide.ckpt", hidden_size=48),
    }
    report = shift(
        tmp_path / "out", "--checkpoint", *(f"{n}={p}" for n, p in paths.items()), "--layers", "all"
    )
    layers = {key.split("/")[3] for key in report if key.startswith("between/base_deep")}
    assert layers == {"layer_00", "layer_01", "layer_02"}
    assert "deep/shift/cls/ts/layer_03/mean" in report
    wide = {key.rsplit("/", 1)[1] for key in report if key.startswith("between/base_wide")}
    assert wide == {"cka"}
    assert "different hidden widths" in (tmp_path / "out" / "report.md").read_text()


def test_answer_heads_do_not_matter(tmp_path: Path) -> None:
    plain = built(tmp_path / "plain.ckpt")
    typed = built(tmp_path / "typed.ckpt", "rationale")
    report = shift(tmp_path / "out", "--checkpoint", f"plain={plain}", f"typed={typed}", "--variants", "ts")
    assert report["typed/shift/cls/ts/mean"] == pytest.approx(report["plain/shift/cls/ts/mean"])
    assert report["between/plain_typed/tokens/layer_02/cosine"] == pytest.approx(1)


def test_other_tokens_cannot_be_compared(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [f"bert={room / 'a'}", f"xlnet={room / 'xlnet'}"]
    report = shift(tmp_path / "out", "--checkpoint", *named, "--variants", "ts")
    assert not [key for key in report if key.startswith("between/")]
    assert "bert and xlnet cannot be compared" in (tmp_path / "out" / "report.md").read_text()
    asked = ["shift", "--checkpoint", *named, "--data", DATA, "--limit", "4", "--between", "first"]
    error = told(capsys, *asked, "--output", tmp_path / "no")
    assert "vocabularies" in error
    assert "--between none" in error
    assert not (tmp_path / "no").exists()
