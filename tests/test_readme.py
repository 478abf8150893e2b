"""The lines a reader meets first run, and give what they say."""

import ast
import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
KEYS = re.compile(r"`([a-z]+\d{4}[a-z]*)`")


def stated(line: str) -> str | None:
    """What a line says it gives: the text after `->` in its comment."""
    return line.rpartition("-> ")[2].strip() if re.search(r"#.*-> ", line) else None


def test_the_twenty_lines_run_and_give_what_they_say():
    _, block = BLOCKS
    lines = block.splitlines()
    namespace: dict = {}
    compared = 0
    for node in ast.parse(block).body:
        source = ast.unparse(node)
        if not isinstance(node, ast.Expr):
            exec(source, namespace)  # noqa: S102
            continue
        value = eval(source, namespace)  # noqa: S307
        if (claim := stated(lines[node.end_lineno - 1])) is not None:
            assert str(value) == claim, lines[node.end_lineno - 1]
            compared += 1
    assert compared == block.count("-> ") == 4
    assert 20 <= len([line for line in lines if line]) <= 22


def test_the_loop_of_ones_own_learns():
    loop, _ = BLOCKS
    namespace: dict = {}
    exec(loop, namespace)  # noqa: S102
    assert namespace["loss"].item() < 4.5  # log(511) = 6.2 is the collapsed loss
    assert len([line for line in loop.splitlines() if line]) <= 14


def test_every_paper_named_is_in_the_bibliography():
    bib = (ROOT / "references.bib").read_text()
    assert [key for key in KEYS.findall(README) if f"{{{key}," not in bib] == []


def test_every_object_named_in_the_docs_exists():
    import chiaroscuro

    page = (ROOT / "docs" / "benchmarks.md").read_text()
    table = page.split("| object |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]*)`", cell)]
    names = {name for span in spans for name in re.findall(r"\b[A-Z]\w+", span)}
    assert len(names) >= 20
    assert names <= set(dir(chiaroscuro))


def test_every_measured_number_is_the_one_in_the_results():
    path = ROOT / "benchmarks" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.written(README) == README, "run `python benchmarks/tables.py`"
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for name, render in tables.TABLES.items():
        assert f"<!-- generated: benchmark {name} -->" in page
        path = ROOT / "benchmarks" / "results" / f"{name}.json"
        if not path.is_file():  # the page says that it is not measured yet
            continue
        content = json.loads(path.read_text())
        assert re.search(r"\d", render(content)), name


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#\s]+)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
