"""Turn docstrings into Markdown: sections, arguments with their defaults, citations as links."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

__all__ = ["cited", "document", "escaped", "signature", "summary"]

SECTIONS = (
    *("Args", "Returns", "Raises", "Relations", "Numerics", "References", "Sources", "Example"),
    *("Examples", "Attributes", "Yields", "Note", "Notes"),
)
_HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):\s*(.*)$")
_ITEM = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): (.*)$")
_CITATION = re.compile(r"\[([a-z]+\d{4}\w*)([^\]`]*)\](?!\()")
_CODE = re.compile(r"(``[^`]+``|`[^`\n]+(?:\n[^`\n]+)?`)")
_KEY = re.compile(r"\b[a-z]+\d{4}\w*\b")


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.split("\n\n")[0].split())


def escaped(text: str) -> str:
    """Escape what Markdown or HTML would interpret, outside of code."""
    parts = _CODE.split(text)
    for at in range(0, len(parts), 2):
        plain = parts[at].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        plain = plain.replace("*", "\\*").replace("|", "\\|").replace("$", "\\$")
        parts[at] = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", plain)
    return "".join(parts)


def cited(text: str, bibliography: str = "bibliography.md") -> str:
    """Link `[chen2020simclr, B.9]` to the bibliography."""
    parts = _CODE.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = _CITATION.sub(rf"[\[\1\2\]]({bibliography}#\1)", parts[at])
    return "".join(parts)


def signature(name: str, thing: Callable[..., Any]) -> str:
    """Return the call of a function or class, one parameter a line if it is long."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    empty = inspect.Parameter.empty
    parameters, star = [], False
    for one in found.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parameters.append("*")
            star = True
        star = star or one.kind is one.VAR_POSITIONAL
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        text = prefix + one.name
        if one.annotation is not empty:
            text += f": {_annotation(one.annotation)}"
        if one.default is not empty:
            text += f" = {_default(one.default)}"
        parameters.append(text)
    returned = found.return_annotation
    arrow = ""
    if not inspect.isclass(thing) and returned is not empty:
        arrow = f" -> {_annotation(returned)}"
    line = f"{name}({', '.join(parameters)}){arrow}"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in parameters) + f"){arrow}"


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _default(value: Any) -> str:
    text = repr(value)
    factory = "<factory>" in text or " at 0x" in text
    return "..." if factory or len(text) > 60 else text


def document(thing: Any, level: int = 4) -> str:
    """Return the docstring of an object as Markdown.

    Args:
        thing: a class, function or module.
        level: of the headings of its sections.
    """
    lines = (inspect.getdoc(thing) or "").splitlines()
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        if head := _HEAD.match(line):
            blocks.append((head[1], [head[2]] if head[2] else []))
        else:
            blocks[-1][1].append(line)
    out = []
    for title, body in blocks:
        text = _section(title, body, thing, level)
        if text.strip():
            out.append(text)
    return "\n\n".join(out) + "\n"


def _section(title: str, body: list[str], thing: Any, level: int) -> str:
    inline = bool(body) and not body[0].startswith(" ") and bool(title)
    text = "\n".join(body)
    if not inline:
        text = inspect.cleandoc("\n" + text) if title else text
    if not title:
        return _prose(text)
    if title == "References":
        keys = ", ".join(f"[{key}](bibliography.md#{key})" for key in _KEY.findall(text))
        return f"**References.** {keys}"
    if title in ("Args", "Attributes"):
        return f"**{'Arguments' if title == 'Args' else title}**\n\n{_arguments(text, thing)}"
    if title in ("Example", "Examples"):
        return f"**Example**\n\n```pycon\n{text.strip()}\n```"
    if inline or "\n" not in text.strip():
        return f"**{title}.** {_prose(text).lstrip()}"
    items = _sentences(text) if title == "Relations" else _prose(text)
    return f"**{title}**\n\n{items}"


def _sentences(text: str) -> str:
    """One list item for each sentence that begins a line."""
    items: list[str] = []
    for line in text.splitlines():
        fresh = not items or items[-1].rstrip().endswith((".", ";"))
        if line.startswith("  ") or not fresh:
            items[-1] += " " + line.strip()
        elif line.strip():
            items.append(line.strip())
    return "\n".join(f"- {cited(escaped(item))}" for item in items)


def _prose(text: str) -> str:
    """Escape paragraphs; leave doctests and indented formulas as code."""
    out, code = [], False
    for paragraph in re.split(r"\n\s*\n", text):
        first = paragraph.lstrip("\n")
        code = first.startswith("    ")
        if first.startswith(">>>"):
            out.append(f"```pycon\n{first}\n```")
        elif code:
            out.append("```text\n" + inspect.cleandoc("\n" + paragraph) + "\n```")
        else:
            lines = first.splitlines()
            at = next((i for i, line in enumerate(lines) if line.startswith("    ")), len(lines))
            out.append(cited(escaped("\n".join(lines[:at]))))
            if at < len(lines):
                out.append("```text\n" + inspect.cleandoc("\n" + "\n".join(lines[at:])) + "\n```")
    return "\n\n".join(out)


def _arguments(text: str, thing: Any) -> str:
    try:
        known = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        known = {}
    rows: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        item = _ITEM.match(line)
        if item:
            rows.append((item[1], [item[2]]))
        elif rows:
            rows[-1][1].append(line.strip())
    out = []
    for names, body in rows:
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        parameter = known.get(names.lstrip("*"))
        default = ""
        if parameter is not None and parameter.default is not inspect.Parameter.empty:
            value = _default(parameter.default)
            default = "" if value in ("None", "...") else f" *(default `{value}`)*"
        out.append(f"- {shown}{default}: {cited(escaped(' '.join(body).strip()))}")
    return "\n".join(out)
