"""Lightning's counters of batches and epochs in a checkpoint, in one form that it goes on from correctly.

Lightning can continue from every save point, but counts differently in each, and in some of them wrongly (an
epoch's end under `max_steps`, a validation that was due). Here every checkpoint says the same: k batches of
this epoch are done with all that belongs to them, or the epoch is.
"""

from __future__ import annotations

from typing import Any, Literal

import pytorch_lightning as pl

SavePoint = Literal["", "validated", "between batches", "validation due", "epoch done", "epoch cut short"]


def save_point_of(fit_loop: dict[str, Any]) -> SavePoint:
    """When somebody else saves: ModelCheckpoint, after validation or when an epoch is done."""
    epoch = fit_loop["epoch_progress"]["current"]
    return "epoch done" if epoch["processed"] == epoch["ready"] else "validated"


def consistent_counters(fit_loop: dict[str, Any], save_point: SavePoint, accumulation: int) -> None:
    """Bring the state of Lightning's loops into the form that it goes on from correctly, in place.

    Args:
        fit_loop: `checkpoint["loops"]["fit_loop"]`.
        save_point: when it was taken. "validated" needs nothing: Lightning skips the validation that is due.
            "between batches": the next batch has been fetched, and its hooks have begun. "validation due":
            all is done but the validation. "epoch done", "epoch cut short" (by max_steps, say): Lightning has
            begun to count the epoch as processed.
        accumulation: batches of a step; gradients of half a step are not saved, so its batches come again.
    """
    batches, epochs = fit_loop["epoch_loop.batch_progress"], fit_loop["epoch_progress"]
    if save_point == "validation due":
        # One batch was begun, none finished: so Lightning goes back into validation, to its first batch.
        validation = fit_loop["epoch_loop.val_loop.batch_progress"]
        for counts in (validation["total"], validation["current"]):
            counts.update(dict.fromkeys(counts, 0))
        validation["total"].update(ready=1, started=1)
        validation["is_last_batch"] = False
    elif save_point == "between batches":
        _set_batches(fit_loop, batches["current"]["processed"])
    elif save_point == "epoch done":
        for counts in (epochs["total"], epochs["current"]):
            counts["completed"] = counts["processed"]
        _set_batches(fit_loop, 0)
    elif save_point == "epoch cut short":
        for counts in (epochs["total"], epochs["current"]):
            counts["processed"] -= 1
            counts["completed"] = counts["processed"]
        batches["total"]["processed"] -= batches["current"]["processed"] % accumulation
        _set_batches(fit_loop, batches["current"]["processed"] // accumulation * accumulation)


def _set_batches(fit_loop: dict[str, Any], done: int) -> None:
    """`done` batches of this epoch, all finished."""
    progress = fit_loop["epoch_loop.batch_progress"]
    for counts, value in ((progress["total"], progress["total"]["processed"]), (progress["current"], done)):
        counts.update(dict.fromkeys(counts, value))
    progress["is_last_batch"] = False


def recount(fit_loop: dict[str, Any], before: int, now: int) -> None:
    """Turn batches of each of `before` processes into those of each of `now`, in place; rounded down."""
    progress = fit_loop["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        counts.update({name: value * before // now for name, value in counts.items()})
    progress["is_last_batch"] = False


def start_after(trainer: pl.Trainer, batches: int) -> None:
    """Let the training loader begin after so many batches. Lightning would, but has made its iterator long
    before it reads the loader's state, to count the steps of an epoch."""
    loop = trainer.fit_loop
    for loader in loop._combined_loader.flattened:
        loader.load_state_dict({"consumed": batches})
    iter(loop._data_fetcher)
