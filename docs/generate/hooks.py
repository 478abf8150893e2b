"""MkDocs hooks: add the generated pages, fill the markers, turn formulas into MathML."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

sys.path[:0] = [str(Path(__file__).parent)]

import benchmarks_page  # noqa: E402
import costs  # noqa: E402
import figures  # noqa: E402
import papers  # noqa: E402
import reference  # noqa: E402
import tutorials  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
_MARKER = re.compile(r"^<!-- generated: ([\w -]+) -->$", re.MULTILINE)
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">(?:\\\((.*?)\\\)|\\\[(.*?)\\\])</\1>', re.DOTALL
)
_BAR = '<mo stretchy="false">&#x0007C;</mo>'
_TIGHT_BAR = '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>'


def on_files(files: Any, config: Any) -> Any:
    """Add every page that is made from code, results or notebooks."""
    pages: dict[str, str | bytes] = {**reference.pages(ROOT), **figures.pages()}
    pages |= tutorials.pages(ROOT)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace `<!-- generated: what words -->` by what it names."""
    makers = {"claims": papers.claims, "papers": papers.table, "benchmark": benchmarks_page.one}
    makers |= {"benchmarks": benchmarks_page.rest}
    makers |= {"tutorials": tutorials.table, "code": papers.code, "costs": costs.written}

    def made(marker: re.Match[str]) -> str:
        what, *words = marker[1].split()
        return str(makers[what](ROOT, *words))

    return _MARKER.sub(made, markdown)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Turn every formula into MathML, which browsers show without a script."""

    def formula(match: re.Match[str]) -> str:
        text = html.unescape(match[2] or match[3]).strip()
        shown = str(convert(text, display="block" if match[1] == "div" else "inline"))
        return shown.replace(_BAR, _TIGHT_BAR)

    return _FORMULA.sub(formula, content)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let search work from the file system without fetching a script from the network."""
    ours = get_relative_url("assets/worker.js", page.url)
    return output.replace("https://unpkg.com/iframe-worker/shim", ours)
