"""Execute a script of cells (`# %%`) as a notebook would, and write it with its outputs.

    python docs/generate/notebook.py tutorial.py tutorial.ipynb

A cell's output is what it prints, the value of its last expression (unless it ends in `;`), and the
figures it leaves open. The first error ends the execution. Prints the seconds of CPU time it took.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import sys
import time
from pathlib import Path
from typing import Any


def cells(source: str) -> list[dict[str, Any]]:
    """Split a script into cells of Markdown and of code."""
    made = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [re.sub(r"^# ?", "", line) for line in body.strip().splitlines()]
            made.append({"cell_type": "markdown", "metadata": {}, "source": "\n".join(lines)})
        else:
            code = {"execution_count": None, "outputs": [], "source": body.strip()}
            made.append({"cell_type": "code", "metadata": {}, **code})
    return made


def execute(book: list[dict[str, Any]], name: str) -> None:
    """Run the code cells in one namespace, and put their outputs into them."""
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate((c for c in book if c["cell_type"] == "code"), start=1):
        tree = ast.parse(cell["source"], f"{name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{name}, cell {number}", "exec"), namespace)  # noqa: S102
            if last is not None:
                expression = ast.Expression(last.value)
                value = eval(compile(expression, name, "eval"), namespace)  # noqa: S307
        cell["execution_count"] = number
        if printed.getvalue():
            stream = {"output_type": "stream", "name": "stdout", "text": printed.getvalue()}
            cell["outputs"].append(stream)
        if value is not None and not cell["source"].endswith(";"):
            data = {"text/plain": repr(value)}
            result = {"output_type": "execute_result", "metadata": {}, "data": data}
            cell["outputs"].append(result | {"execution_count": number})
        cell["outputs"] += [
            {"output_type": "display_data", "metadata": {}, "data": {"image/png": figure}}
            for figure in _figures()
        ]


def _figures() -> list[str]:
    import matplotlib.pyplot as plt

    made = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=110, bbox_inches="tight")
        made.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return made


def main(source: str, out: str) -> None:
    """Execute the script and write the notebook."""
    book = cells(Path(source).read_text(encoding="utf-8"))
    execute(book, Path(source).name)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = {"cells": book, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    Path(out).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"{time.process_time():.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
