"""Small HTML for notebooks: no scripts, no colours of its own, so that dark and light both work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]

_CELL = "text-align:left;padding:2px 10px 2px 0;border-bottom:1px solid rgba(128,128,128,.35)"


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """Return a table with a title; everything is escaped.

    Example:
        >>> "<b>a &lt; b</b>" in html_table("a < b", [("n", 3)])
        True
    """
    line = lambda cells, tag: "".join(
        f'<{tag} style="{_CELL}">{escape(str(cell))}</{tag}>' for cell in cells
    )
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    top = f"<tr>{line(head, 'th')}</tr>" if head else ""
    return (
        f'<div style="color:inherit"><b>{escape(title)}</b>'
        f'<table style="border-collapse:collapse;color:inherit">{top}{body}</table></div>'
    )
