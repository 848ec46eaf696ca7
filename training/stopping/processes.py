"""How the processes of a run stop together: signals, an agreement on the step, and one message for a failure.

Lightning's way is not enough here. Its signal handler starts a collective operation wherever the process
happens to be, which may cross those of the training step, and its loop asks all processes for a signal in
every step, for which a GPU has to be waited for. It tells of a failed process by killing all others, the
one that would tell why included.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.strategies.launchers import subprocess_script
from torch.nn.parallel import DistributedDataParallel

HINTS = ("gloo", "NCCL", "Connection closed by peer", "Connection reset", "Socket")
PRETRAINING_ONLY = ("encoder.mask_emb",)
"""Weights that fine-tuning leaves alone: XLNet's stand-in for a masked token."""
PATIENCE_S = 1.5
"""How long other processes leave it to the first one to tell of an error that all may have met."""


class Stopped(SystemExit):
    """A run that was told to stop, and did in good order; its exit code is the one shells give the signal."""

    def __init__(self, signum: int) -> None:
        # Children that the first process has started leave the exit code to it.
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

    def exchange(self, wish: int) -> int:
        """The greatest wish of any process; with several, that of their last calls. All must call."""
        if self._group is None:
            return wish
        agreed = self._result()
        wishes = torch.tensor([wish])
        work = dist.all_reduce(wishes, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        self._pending = (work, wishes)
        return agreed

    def _result(self) -> int:
        if self._pending is None:
            return 0
        work, wishes = self._pending
        work.wait()
        return int(wishes)

    def finish(self) -> None:
        """Wait for what is under way."""
        self._result()
        self._pending = None


def expect_no_gradient(module: torch.nn.Module) -> None:
    """Tell DDP of the parameters that no loss of ours reaches; it would wait for their gradients."""
    names = [name for name, _ in module.named_parameters() if name.endswith(PRETRAINING_ONLY)]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


def is_distributed() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_child() -> bool:
    """Whether another process of this run, on this machine, has started this one."""
    launched = "LOCAL_RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ
    return launched and int(os.environ["LOCAL_RANK"]) > 0


def rank() -> int:
    """Of this process, as far as its surroundings tell before anything is set up."""
    return next((int(os.environ[n]) for n in ("RANK", "SLURM_PROCID", "LOCAL_RANK") if n in os.environ), 0)


def lost_contact(error: BaseException) -> bool:
    """Whether an error only says that another process is gone."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError):
        return True
    return isinstance(error, RuntimeError) and any(hint in str(error) for hint in HINTS)


def tell(message: str) -> None:
    """Print an error that all processes may have met: the first tells at once, and when it ends, so do the
    others, before they come to speak."""
    if rank() > 0:
        time.sleep(PATIENCE_S)
    print(message, file=sys.stderr, flush=True)


def watch(children: list[subprocess.Popen]) -> None:
    """End this process and the others when a child has failed, with the child's exit code; replaces
    Lightning's observer."""
    if children:
        threading.Thread(target=_watch, args=(children,), daemon=True, name="watch children").start()


def _watch(children: list[subprocess.Popen]) -> None:
    while any(child.poll() is None for child in children):
        time.sleep(0.1)
        failed = next((i for i, child in enumerate(children) if child.returncode), None)
        if failed is not None:
            break
    codes = [child.poll() for child in children]
    failed = next((i for i, code in enumerate(codes) if code), None)
    if failed is None or _ending.is_set():
        return
    code = codes[failed]
    assert code is not None
    if code < 0:
        name = signal.Signals(-code).name
        print(f"error: process {failed + 1} was ended by {name}", file=sys.stderr, flush=True)
    end_children(children)
    os._exit(code if code > 0 else 128 - code)


_ending = threading.Event()


def end_children(children: list[subprocess.Popen]) -> None:
    """Kill them: a process that waits for others in a collective operation hears nothing else."""
    _ending.set()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.kill()


def follow_parent() -> None:
    """In a child: end when the first process is gone, however that came about."""
    if is_child():
        threading.Thread(target=_follow, args=(os.getppid(),), daemon=True, name="follow parent").start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def install() -> None:
    """Put our observer in the place of Lightning's, and follow the process that started this one."""
    subprocess_script._launch_process_observer = watch
    follow_parent()
