"""Replaces `fit`, waits for `until`: x below 0 fails, 7 gives NaN, 8 no metric, 9 is killed."""

import json
import os
import signal
import sys
import time
from pathlib import Path

flags = dict(word[2:].split("=", 1) for word in sys.argv if word[:2] == "--" and "=" in word)
x = float(flags["x"])
folder = Path(flags["run.root"]) / flags["run.name"] / flags["run.version"]
(folder / "checkpoints").mkdir(parents=True, exist_ok=True)
(folder / "checkpoints" / "last.ckpt").touch()
with open(folder / "starts.txt", "a") as file:
    file.write(json.dumps({"flags": flags, "job": os.environ.get("SLURM_NTASKS")}) + "\n")
while not Path(flags.get("until", "/")).exists():
    time.sleep(0.05)
if x < 0:
    sys.exit("a long story\nerror: x must not be negative")
if x == 9:
    os.kill(os.getpid(), signal.SIGKILL)
value = float("nan") if x == 7 else x + float(flags.get("y", 0))
metrics = {"other": 1.0} if x == 8 else {"val/score": value, "best/val/score": value + 10}
(folder / "metrics.json").write_text(json.dumps(metrics))
