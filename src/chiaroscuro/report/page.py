"""The page: one file of HTML that holds its data, style and script, and asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts.files import replace
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.report.axes import MAPS
from chiaroscuro.report.document import document
from chiaroscuro.report.packing import readable
from chiaroscuro.report.points import POINTS
from chiaroscuro.report.subject import subjects

__all__ = ["page", "policy", "report", "script"]

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (function|const) (\w+)", re.MULTILINE)


def report(
    subject: Any,
    path: str | os.PathLike,
    points: int = POINTS,
    maps: Sequence[str] = ("tsne",),
    diagnosis: Mapping[str, Any] | None = None,
) -> Path:
    """Write a page about a run, several runs, or embeddings; it opens anywhere, without a network.

    Args:
        subject: a `Run`, its folder, `Embeddings`, their file, a `Diagnosis`, a folder of any of
            these or of labs, or a list of them to compare.
        path: ends in `.html`.
        points: samples shown of each; more are sampled, stratified by label, and the page says so.
        maps: "tsne", "umap": computed beside the principal and spectral axes; the page opens on
            t-SNE unless it is left out.
        diagnosis: of the first, if it is not in its folder.

    Example:
        >>> import numpy as np, tempfile
        >>> from chiaroscuro.artifacts import Embeddings
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = report(Embeddings(h=np.eye(9)), f"{folder}/page.html")
        ...     path.name, path.read_text()[:15]
        ('page.html', '<!doctype html>')
    """
    path = Path(path)
    need(
        path.suffix in (".html", ".htm"),
        lambda: f"A page needs a name that ends in `.html`; received `{path.name}`.",
    )
    need(points >= 3, lambda: f"`report(points)` needs at least 3; received {points}.")
    for name in maps:
        need(name in MAPS, lambda name=name: f"A map is one of {', '.join(MAPS)}; received {name}.")
    text = page(document(subjects(subject, diagnosis), points, maps))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, lambda file: _write(file, text))
    return path


def _write(file: Any, text: str) -> None:
    file.write(text.encode())


def page(content: Mapping[str, Any], connect: str = "'none'") -> str:
    """Return the HTML of a document, with the hashes of its script and style in its policy.

    Args:
        content: as `document` makes it.
        connect: whom the page may ask: nobody, or `'self'` when it is served live.
    """
    style, code = _read("page.css"), script()
    # `<` is the only letter that could end the element early
    data = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    data = readable(data.replace("<", "\\u003c"))
    title = html.escape(readable(f"{content.get('title') or 'Report'} · Chiaroscuro"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(code, style, connect)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page draws its figures with JavaScript, which is switched off.</noscript>
<div id="page"><main><p class="explain">{title}</p></main></div>
<script type="application/json" id="document">{data}</script>
<script type="module">{code}</script>
</body>
</html>
"""


def policy(code: str, style: str, connect: str = "'none'") -> str:
    """Return the content-security policy: this script and this style, images from the page, no
    more.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(code)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def script() -> str:
    """Return the modules of the front end as one, each a function called after those that it
    imports.
    """
    made: dict[str, str] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ChiaroError(f"The front end imports in a circle: {' > '.join((*above, name))}.")
        if name in made:
            return
        text = _read(f"{name}.js")
        for _, needed in _IMPORT.findall(text):
            visit(needed, (*above, name))
        names = ", ".join(name for _, name in _EXPORT.findall(text))
        body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const \1 = $\2;", text)).strip()
        made[name] = f"const ${name} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"

    visit("main", ())
    return "\n" + "\n".join(made.values()) + "\n"


def _read(name: str) -> str:
    return (resources.files("chiaroscuro.report") / "front" / name).read_text(encoding="utf-8")
