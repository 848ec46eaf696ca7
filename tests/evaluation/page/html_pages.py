"""Small runs and reports, and their page taken apart by a parser that is not ours."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from evaluation.page.folders import find_results
from evaluation.page.page import page
from evaluation.report import Evaluation, write_report
from evaluation.results import Results
from evaluation.views import Table

HOSTILE = (
    "</td><script>alert('x')</script> \"'><img src=x onerror=alert(1)> &amp; {{ 71911*7 }} `c` *e* ‮ß→ 🐟"
)
PNG = b"\x89PNG\r\n\x1a\n and so on"
EXAMPLES = [
    {"checkpoint": name, "variant": variant, "id": f"{variant}-{i}", "em": i % 2 / 1, "said": "yes"}
    for name in ("before", "after")
    for variant in ("os", "ts_r")
    for i in range(9)
]


def some_results() -> Results:
    results = Results(("checkpoint", "variant"), unit="questions")
    results.add_means(EXAMPLES, ("em",), unit="id")
    results.add("p_value", 0.0000123, n=9, checkpoint="after", variant="ts_r")
    results.add("p_value", float("nan"), n=0, checkpoint="after", variant="os")
    return results


def a_report(**changes: Any) -> Evaluation:
    rows = (("before", "os", "50.0", 9), ("after", "ts_r", "–", 9))
    content: dict[str, Any] = {
        "title": "Faithfulness of two",
        "results": some_results(),
        "views": (Table("By variant", ("checkpoint", "variant", "EM", "n"), rows, "EM: *exact*"),),
        "about": {
            "protocol": "faithfulness",
            "checkpoints": {"before": {"path": "a.ckpt", "sha256": "0f" * 32}, "after": {"path": "b.ckpt"}},
        },
        "headline": "Before and after are alike.",
        "notes": ("Answers to `os` and others.",),
        "figures": {"em.png": lambda _, path: path.write_bytes(PNG)},
        "examples": EXAMPLES,
    }
    return Evaluation(**{**content, **changes})


def a_run(folder: Path, seed: int = 0, text: str = "plain") -> Path:
    """What `python -m training fit` leaves, in short."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"seed_everything: {seed}\nmodel:\n  learning_rate: 1.0e-4\n  note: {json.dumps(text)}\n"
    )
    environment = {
        "command": ["fit", text],
        "packages": {"torch": "2.13.0"},
        "data": {"train.json": "ab" * 32},
    }
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "metrics.json").write_text(json.dumps({"val/qa/f1": 0.25 + seed, "step": 20}))
    (folder / "metrics.csv").write_text(
        "epoch,step,train/loss/total,val/qa/f1\n"
        + "".join(f"0,{s},{1 / s},\n0,{s},,0.{s}\n" for s in range(1, 9))
    )
    return folder


class Page(HTMLParser):
    """A page taken apart by a parser that is not ours."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.script = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.tags[-1:] == ["script"] and not self.script:
            self.script = data

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]

    @property
    def text(self) -> str:
        return "".join(self.texts)


def made(*folders: Path | str, **options: Any) -> Page:
    return Page(page(find_results([str(folder) for folder in folders]), title="T", **options))


def check_self_contained(found: Page) -> None:
    """No address leads out, and the policy admits this one script."""
    assert found.values("src")
    assert all(src.startswith("data:image/") for src in found.values("src"))
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert all(href.startswith("#") and href[1:] in ids for href in found.values("href"))
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    assert not [name for _, name, _ in found.attributes if name.startswith("on") or name == "style"]
    assert found.tags.count("script") == 1
    policy = found.values("content")[0]
    assert "default-src 'none'; img-src data:;" in policy
    assert b64encode(sha256(found.script.encode()).digest()).decode() in policy
    style = found.texts[next(i for i, text in enumerate(found.texts) if ":root" in text)]
    assert "url(" not in style
    assert "@import" not in style


def furnish(folder: Path) -> Path:
    """Two runs and a report in a folder; the folder itself."""
    a_run(folder / "runs/ot/0")
    a_run(folder / "runs/ot/1", seed=1)
    write_report(a_report(), folder / "report")
    return folder
