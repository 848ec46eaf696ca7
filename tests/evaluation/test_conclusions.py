"""What reports say in words."""

from __future__ import annotations

from typing import Any

from evaluation.protocols.bias.measures import BY
from evaluation.protocols.bias.views import WHOLE, conclusion
from evaluation.results import Results

Numbers = dict[tuple[str, str], tuple[float, float, float]]
"""Value, low and high by checkpoint and measure."""


def bias(none: Numbers) -> Results:
    """mu of two checkpoints with ethical advice, and what is given without advice."""
    results = Results(BY, "groups")
    place: dict[str, Any] = {"data": "heldout", **WHOLE}
    for name, value in (("base", 0.62), ("tuned", 0.09)):
        at = place | {"checkpoint": name, "class": "ethical"}
        results.add("mu", value, n=192, interval=(value - 0.04, value + 0.04), **at)
        results.add("mass", 0.9, n=192, **at)
    for (name, measure), (value, *ends) in none.items():
        at = place | {"checkpoint": name, "class": "none"}
        results.add(measure, value, n=343, interval=(ends[0], ends[1]), **at)
    return results


STILL = {(name, "mu"): (0.6, 0.5, 0.7) for name in ("base", "tuned")}


def test_the_side_effects_of_training_stand_in_the_headline() -> None:
    results = bias(STILL)
    for measure, ends in (("mean_abs_c", (-0.1, 0.1)), ("delta", (0.2, 0.26)), ("eps", (1e-9, 3e-9))):
        place = {"checkpoint": "tuned", "data": "heldout", "class": "none"}
        results.add(f"side_effect_{measure}", sum(ends) / 2, n=343, interval=ends, **place)
    assert conclusion(results, ["base", "tuned"]) == (
        "heldout (base -> tuned), ethical advice: mu .62 -> .090 (95 % interval .050 to .13, n 192); without "
        "advice position dependence delta changed by .23 (.20 to .26, n 343). Good: mu falls with ethical "
        "advice, rises with adversarial, and nothing else moves; mu, delta and eps near 0 without advice."
    )


def test_without_common_questions_there_are_levels_and_no_side_effects() -> None:
    results = bias(STILL)
    assert "; without advice mu .60 -> .60 (.50 to .70, n 343), " in conclusion(results, ["base", "tuned"])
    assert "; without advice mu .60 (.50 to .70, n 343), " in conclusion(results, ["tuned"])


def test_a_small_mu_of_a_model_that_answers_something_else() -> None:
    results = Results(BY, "groups")
    for measure in ("mu", "mass"):
        results.add(measure, 0.02, n=5, interval=(0.01, 0.03), checkpoint="a", **{"class": "ethical"})
    text = conclusion(results, ["a"])
    assert (
        "both subjects together get mass .020 (.010 to .030, n 5) only, so that a small mu means nothing"
        in text
    )
