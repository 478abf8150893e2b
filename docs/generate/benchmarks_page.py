"""Write the tables of the benchmarks from `benchmarks/results`, with command, machine and date."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any


def one(root: Path, *words: str) -> str:
    """Return the table of one benchmark, and how it was measured."""
    name = " ".join(words)
    path = root / "benchmarks" / "results" / f"{name}.json"
    if not path.is_file():
        return f"Not measured yet: `python benchmarks/{name}.py` writes this table."
    content = json.loads(path.read_text())
    tables = _tables(root)
    former = name.startswith("advice") and "cases" in content["result"]
    if former:  # of the benchmark of planted faults before its ills had strengths
        body = "Measured by the former version of this benchmark.\n\n" + _generic(content["result"])
    else:
        known = name in tables.TABLES
        body = tables.TABLES[name](content) if known else _generic(content["result"])
    body = re.sub(r"\(`python [^`]*`\)|Command: `[^`]*`\.?", "", body).replace(" .", ".").rstrip()
    return f"{body}\n\n{_provenance(content)}"


def rest(root: Path) -> str:
    """Return the tables of all benchmarks that the page does not show by name."""
    page = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"<!-- generated: benchmark ([\w -]+) -->", page))
    lines = []
    for path in sorted((root / "benchmarks" / "results").glob("*.json")):
        measured = isinstance(json.loads(path.read_text()), dict)  # a list is a log
        if measured and path.stem not in shown:
            title = path.stem.replace("_", " ").replace("-", " ").capitalize()
            lines += [f"### {title}", "", one(root, path.stem), ""]
    return "\n".join(lines)


def _tables(root: Path) -> Any:
    path = root / "benchmarks" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _provenance(content: dict[str, Any]) -> str:
    found = content.get("environment", {})
    machine = ", ".join(
        str(part)
        for part in (
            found.get("cpu"),
            f"{found['threads']} threads" if found.get("threads") else None,
            f"torch {found['torch']}" if found.get("torch") else None,
        )
        if part
    )
    date = str(found.get("date", ""))[:10]
    return (
        f"*Command:* `{content['command']}`. *Machine:* {machine}. *Date:* {date}.\n{{: .small }}"
    )


def _generic(result: Any) -> str:
    """Flatten nested numbers into a table of two columns."""
    rows = list(_flat(result, ""))
    lines = ["| quantity | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows[:40]]
    if len(rows) > 40:
        lines += ["", f"{len(rows) - 40} further numbers are in the JSON file."]
    return "\n".join(lines)


def _flat(value: Any, under: str) -> Any:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{under}, {key}" if under else str(key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for at, inner in enumerate(value):
            yield from _flat(inner, f"{under} {at + 1}".strip())
    elif isinstance(value, float):
        yield under.replace("_", " "), f"{value:.4g}"
    else:
        text = json.dumps(value) if isinstance(value, list) else str(value)
        yield under.replace("_", " "), text.replace("|", "\\|")[:120]
