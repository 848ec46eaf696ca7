"""A page taken apart by a parser that is not ours."""

from html.parser import HTMLParser
from pathlib import Path

from interventune.evaluation.page.page import find_results, page

TAGS = (
    "html head meta title style body header section h1 h2 h3 h4 h5 h6 p a ul ol li em strong "
    "code pre br del ins div img table thead tbody tr th td details summary"
)
"""All that a page may consist of."""
ADDRESSES = {"href": "#", "src": "data:image/png;base64,", "style": "text-align:"}
"""Attributes that could lead somewhere or hide something, and how they may begin."""


class Page(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes = "", set[str](), list[tuple[str, str]]()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


def page_of(*folders: Path | str) -> Page:
    return Page(page(find_results([str(folder) for folder in folders])))


def check_self_contained(html: Page) -> None:
    """No address leads out, and nothing may be loaded or run."""
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in html.values("content")
    assert html.tags <= set(TAGS.split())
    for name, value in html.attributes:
        assert not name.startswith("on")
        assert value.startswith(ADDRESSES.get(name, "")), (name, value)
