"""How the processes of a run stop together: signals, and an agreement on the step.

Lightning's way is not enough here. Its signal handler starts a collective operation wherever the process
happens to be, which may cross those of the training step, and its loop asks all processes for a signal in
every step, for which a GPU has to be waited for.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

LOST_CONTACT = ("gloo", "NCCL", "Connection closed by peer", "Connection reset", "Socket")
"""Words of errors that say no more than that another process is gone."""


class Stopped(SystemExit):
    """A run that was told to stop, and did in good order; its exit code is the one shells give the signal."""

    def __init__(self, signum: int) -> None:
        # Lightning's launcher takes any other exit code of a child for a failure, and kills the run.
        super().__init__(0 if is_child() else 128 + signum)
        self.signum = signum


class StopSignals:
    """SIGTERM and Ctrl-C: noted while `deferred`, else raised at once as `Stopped`; a second Ctrl-C is always
    raised."""

    def __init__(self) -> None:
        self.received = 0
        self.deferred = False
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take over both signals, in the main thread; elsewhere nobody may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(signum, self._handle)
            self._before.setdefault(signum, before)

    def restore(self) -> None:
        """Give them back."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = signum == signal.SIGINT == self.received
        self.received = signum
        if again or not self.deferred:
            raise Stopped(signum)


class Agreement:
    """Lets all processes act in the same step, one step late, without waiting for a GPU.

    Each call starts a sum over processes on the CPU and returns the result of the call before.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._pending: tuple[Any, torch.Tensor] | None = None

    def start(self) -> None:
        """All processes must call this together."""
        if is_distributed():
            world = dist.group.WORLD
            self._group = world if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")

    def exchange(self, request: int) -> int:
        """The greatest request of any process; with several, that of their last calls. All must call."""
        if self._group is None:
            return request
        agreed = self.finish()
        requests = torch.tensor([request])
        work = dist.all_reduce(requests, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        self._pending = (work, requests)
        return agreed

    def finish(self) -> int:
        """Wait for what is under way, and return what was agreed on; 0 for nothing."""
        if self._pending is None:
            return 0
        (work, requests), self._pending = self._pending, None
        work.wait()
        return int(requests)


def is_distributed() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_child() -> bool:
    """Whether another process of this run, on this machine, has started this one."""
    launched = "LOCAL_RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ
    return launched and int(os.environ["LOCAL_RANK"]) > 0


def lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another process is gone."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in LOST_CONTACT)
