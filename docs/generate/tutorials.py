"""Execute the tutorials: `docs/tutorials/*.py` become notebooks, and pages with their outputs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import notebook
from mkdocs.exceptions import PluginError


def pages(root: Path) -> dict[str, str | bytes]:
    """Return the page, the notebook and the images of every tutorial."""
    sources = sorted((root / "docs" / "tutorials").glob("*.py"))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        executed = list(pool.map(lambda source: _executed(source, root), sources))
    made: dict[str, str | bytes] = {}
    for source, book in zip(sources, executed, strict=True):
        made |= _page(source.stem, book)
    return made


def table(root: Path) -> str:
    """Return the list of tutorials: title and first paragraph."""
    lines = ["| tutorial | what it shows |", "|---|---|"]
    for name in _order(root):
        text = (root / "docs" / "tutorials" / f"{name}.py").read_text(encoding="utf-8")
        title, about = notebook.cells(text)[0]["source"].split("\n\n", 1)
        first = " ".join(about.split("\n\n")[0].split())
        lines.append(f"| [{title.removeprefix('# ')}]({name}.md) | {first} |")
    return "\n".join(lines)


def _order(root: Path) -> list[str]:
    nav = (root / "mkdocs.yml").read_text(encoding="utf-8")
    return [name for name in re.findall(r"tutorials/(\w+)\.md", nav) if name != "index"]


def _executed(source: Path, root: Path) -> dict[str, Any]:
    """Run a tutorial, or take its outputs from the cache while neither it nor the code changed."""
    digest = hashlib.sha256(source.read_bytes())
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in (".py", ".toml", ".c"):
            digest.update(path.read_bytes())
    cache = root / "build" / "tutorials" / f"{source.stem}-{digest.hexdigest()[:16]}.ipynb"
    if not cache.is_file():
        _execute(source, cache)
    made: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
    return made


def _execute(source: Path, cache: Path) -> None:
    work = cache.parent / source.stem
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "error", notebook.__file__, str(source), str(cache)],
        cwd=work,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PluginError(f"tutorial {source.name} fails:\n{done.stderr}")
    seconds = f"{time.perf_counter() - began:.0f} s, {done.stdout.strip()} s of CPU time"
    print(f"tutorial {source.stem}: {seconds}", file=sys.stderr)


def _page(name: str, book: dict[str, Any]) -> dict[str, str | bytes]:
    made: dict[str, str | bytes] = {f"tutorials/{name}.ipynb": json.dumps(book, indent=1)}
    lines: list[str] = []
    for at, cell in enumerate(book["cells"]):
        if cell["cell_type"] == "markdown":
            lines += [cell["source"], ""]
            if at == 0:
                lines += [f"[Download as a notebook]({name}.ipynb){{download}}", ""]
            continue
        lines += ["```python", cell["source"], "```", ""]
        for number, output in enumerate(cell["outputs"]):
            data = output.get("data", {})
            if "image/png" in data:
                path = f"{name}-{at}-{number}.png"
                made[f"tutorials/{path}"] = base64.b64decode(data["image/png"])
                lines += [f"![Output of the cell above]({path}){{.figure}}", ""]
                continue
            text = output.get("text") or data["text/plain"]
            lines += ['<div class="output" markdown>', "", "```text", text.rstrip(), "```", ""]
            lines += ["</div>", ""]
    made[f"tutorials/{name}.md"] = "\n".join(lines)
    return made
