"""The lines a reader meets first run, and give what they say."""

import ast
import importlib.util
import re
from pathlib import Path

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
KEYS = re.compile(r"`([a-z]+\d{4}[a-z]*)`")


def stated(line: str) -> str | None:
    """What a line says it gives: the text after `->` in its comment."""
    return line.rpartition("-> ")[2].strip() if re.search(r"#.*-> ", line) else None


def test_the_twenty_lines_run_and_give_what_they_say():
    block, _ = BLOCKS
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


def test_the_path_through_a_process_tells_what_survived(tmp_path, monkeypatch, capsys):
    _, block = BLOCKS
    monkeypatch.chdir(tmp_path)
    exec(block, {})  # noqa: S102
    head, *rows = (line.split() for line in capsys.readouterr().out.splitlines()[-4:])
    assert head == ["above", "chance", "content_0", "content_1", "style_0", "style_1", "style_2"]
    assert [name for name, *_ in rows] == ["x", "h", "z"]
    content, style = (
        [sum(map(float, row[part])) / len(row[part]) for row in rows]
        for part in (slice(1, 3), slice(3, None))
    )
    assert style[1] - style[2] > content[1] - content[2]  # what the projector drops is style
    assert len([line for line in block.splitlines() if line]) <= 12


def test_every_paper_named_is_in_the_bibliography():
    bib = (Path(__file__).resolve().parents[1] / "references.bib").read_text()
    assert [key for key in KEYS.findall(README) if f"{{{key}," not in bib] == []


def test_every_object_named_exists():
    import chiaroscuro

    table = README.split("| object |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]*)`", cell)]
    names = {name for span in spans for name in re.findall(r"\b[A-Z]\w+", span)}
    assert len(names) >= 20
    assert names <= set(dir(chiaroscuro))


def test_every_measured_number_is_the_one_in_the_results():
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.written(README) == README, "run `python benchmarks/tables.py`"
    for name in tables.TABLES:
        assert re.search(rf"<!-- {name} -->\n.*\d.*\n(.*\n)*<!-- /{name} -->", README), name
