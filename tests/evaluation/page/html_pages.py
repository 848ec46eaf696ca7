"""Small runs and reports, and their page taken apart by a parser that is not ours."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from evaluation.page.page import find_results, page
from evaluation.report import Evaluation, write_report
from evaluation.results import Results
from evaluation.views import View

TAGS = (
    "html head meta title style body header section h1 h2 h3 h4 h5 h6 p a ul ol li em strong code pre br "
    "div img table thead tbody tr th td details summary"
)
"""All that a page may consist of."""
PNG = b"\x89PNG\r\n\x1a\n and so on"
ADDRESSES = {"href": "#", "src": "data:image/png;base64,", "style": "text-align:"}
"""Attributes that could lead somewhere or hide something, and how they may begin."""


def a_report(folder: Path, value: float = 0.5, **changes: Any) -> Path:
    """A report of faithfulness, in short."""
    results = Results(("variant",), unit="questions")
    for name in ("before", "after"):
        results.add("em", value, n=9, interval=(0.25, 0.75), checkpoint=name, variant="ts_r")
    results.add("em", 0.125, n=9, checkpoint="after", against="before", variant="ts_r")
    content: dict[str, Any] = {
        "title": "Faithfulness of two",
        "results": results,
        "views": (View("By variant", ("variant",), {"em": "EM"}),),
        "about": {"protocol": "faithfulness"},
        "headline": "Before and after are alike.",
        "notes": ("Answers to `os` and *others*.",),
        "figures": {"em.png": lambda _, path: path.write_bytes(PNG)},
        "examples": [{"checkpoint": "before", "id": i, "prediction": f"said-{i}"} for i in range(120)],
    }
    write_report(Evaluation(**{**content, **changes}), folder)
    return folder


def a_run(folder: Path, f1: float = 0.25, text: str = "plain") -> Path:
    """What `train fit` leaves, in short."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"learning_rate: 1.0e-4\nnote: {text}\n", encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"command": ["fit", text]}))
    (folder / "metrics.json").write_text(json.dumps({"val/qa/f1": f1, "step": None}))
    return folder


class Page(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


def page_of(*folders: Path | str) -> Page:
    return Page(page(find_results([str(folder) for folder in folders])))


def check_self_contained(found: Page) -> None:
    """No address leads out, and nothing may be loaded or run."""
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in found.values("content")
    assert set(found.tags) <= set(TAGS.split())
    for name, value in found.attributes:
        assert not name.startswith("on")
        assert value.startswith(ADDRESSES.get(name, "")), (name, value)
    assert set(found.values("href")) <= {f"#{name}" for name in found.values("id")}
    assert not {"url(", "@import"} & set(found.text.split())
