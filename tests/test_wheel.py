"""What pip installs: one package, next to a user's folders with names of its parts."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AS_A_USER = """
import interventune
from interventune.command import main

run = "runs/stories_ot/version_0/checkpoints/last.ckpt"
few = ["--data.limit_train_qa=32", "--data.limit_val_qa=8", "--trainer.enable_progress_bar=false"]
steps = ["--trainer.max_steps=2", *few]
assert not main(["train", "fit", "-c", "stories_ot", "-c", "tiny_roberta", *steps])
asked = ["--data=stories:conversation_dev", "--limit=4", "--device=cpu", "--output=report"]
assert not main(["evaluate", "faithfulness", f"--checkpoint={run}", *asked])
assert not main(["reproduce"])
interventune.Probe("stories:heldout", limit=2)
assert interventune.__file__.startswith(SITE)
"""


def test_a_wheel_serves_next_to_folders_of_the_same_names(tmp_path: Path) -> None:
    unneeded = shutil.ignore_patterns(".*", "cache", "runs", "reports", "build", "*.egg-info")
    shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=unneeded)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", tmp_path, tmp_path / "copy"], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
        folders = {name.partition("/")[0] for name in content.namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"interventune"}
    user = tmp_path / "user"
    for name in ("models", "training"):
        (user / name).mkdir(parents=True)
        (user / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (user / "use.py").write_text(f"SITE = {str(tmp_path)!r}\n{AS_A_USER}")
    paths = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    how: Any = {"cwd": user, "env": paths, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "use.py"], **how)
    assert done.returncode == 0, done.stderr
    assert "demo_ibt" in done.stdout
