"""The documentation names everything there is; the site itself is built by `make docs`."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import chiaroscuro
from chiaroscuro import engine
from chiaroscuro.cli.arguments import build_parser
from chiaroscuro.diagnostics import advice
from chiaroscuro.references import bibliography

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def load(name):
    """A module of docs/generate, which is no package."""
    if name not in sys.modules:
        path = DOCS / "generate" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="module")
def pages():
    load("docstrings")
    return load("reference").pages(ROOT)


def anchors(page):
    return set(re.findall(r"\{#([\w.-]+)\}", page))


def test_every_public_object_has_an_entry(pages):
    reference = load("reference")
    for package in reference.PACKAGES:
        module = importlib.import_module(f"chiaroscuro.{package}")
        assert set(module.__all__) <= anchors(pages[f"reference/{package}.md"]), package
    for name in chiaroscuro.__all__:
        assert f"`{name}`" in pages["reference/chiaroscuro.md"], name


@pytest.mark.parametrize("name", advice.RULES)
def test_every_finding_has_whole_sentences(name):
    load("docstrings")
    found = load("reference")._finding(advice.RULES[name])
    for part in ("evidence", "cause", "advice", "expect"):
        assert found[part].strip(), part
        assert found[part][0] not in " ,;.:", part


def test_every_setting_preset_verb_finding_and_paper_has_an_entry(pages):
    table = engine.Settings().table()
    groups = {name: value for name, value in table.items() if isinstance(value, dict)}
    keys = [name for name in table if name not in groups]
    keys += [f"{group}.{key}" for group, values in groups.items() for key in values]
    for key in keys:
        row = re.search(rf"^\| `{re.escape(key)}` \| .* \|$", pages["reference/settings.md"], re.M)
        assert row is not None, key
        assert len(row[0].rsplit("|", 2)[1].strip()) > 3, f"{key} is not described"
    assert set(engine.presets()) <= anchors(pages["reference/presets.md"])
    assert set(build_parser()[1]) <= anchors(pages["reference/cli.md"])

    assert set(advice.RULES) <= anchors(pages["reference/findings.md"])
    assert set(bibliography()) <= anchors(pages["reference/bibliography.md"])


def test_every_file_ending_is_listed(pages):
    from chiaroscuro.data import find

    for ending in find._FILES:
        assert f"| `{ending}` |" in pages["reference/layouts.md"], ending


def test_every_citation_is_in_the_bibliography(pages):
    linked = {
        key for page in pages.values() for key in re.findall(r"bibliography\.md#([\w-]+)", page)
    }
    assert linked <= set(bibliography())


def test_every_page_of_the_navigation_exists_or_is_generated(pages):
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    named = re.findall(r"([\w/]+\.md)", nav)
    assert len(named) == len(set(named))
    for path in named:
        tutorial = path.startswith("tutorials/") and (DOCS / path).with_suffix(".py")
        assert path in pages or (DOCS / path).is_file() or tutorial.is_file(), path
    assert set(pages) <= set(named)


def test_a_docstring_becomes_markdown():
    docstrings = load("docstrings")

    def f(tau: float = 0.5, *, n: int) -> float:
        """Return a number <b> of tau_k * 2.

            f = tau / n

        Relations: equals `g` [tan2024, eq. 7].

        Args:
            tau: divides; a default
                of two lines.
            n: how many.

        References:
            tan2024, calder2025

        Example:
            >>> f(1.0, n=2)
            0.5
        """

    made = docstrings.document(f)
    assert "&lt;b&gt; of tau_k \\* 2" in made
    assert "```text\nf = tau / n\n```" in made
    assert "[\\[tan2024, eq. 7\\]](bibliography.md#tan2024)" in made
    assert "- `tau` *(default `0.5`)*: divides; a default of two lines." in made
    assert "[calder2025](bibliography.md#calder2025)" in made
    assert "```pycon\n>>> f(1.0, n=2)\n0.5\n```" in made
    assert docstrings.signature("f", f) == "f(tau: float = 0.5, *, n: int) -> float"


def test_a_tutorial_is_executed_like_a_notebook():
    notebook = load("notebook")
    book = notebook.cells(
        "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 2\nprint(x)\nx + 1\n\n# %%\nx;\n"
    )
    assert [cell["cell_type"] for cell in book] == ["markdown", "code", "code"]
    assert book[0]["source"] == "# Title\n\nText."
    pytest.importorskip("matplotlib")
    notebook.execute(book, "test")
    printed, value = book[1]["outputs"]
    assert (printed["text"], value["data"]["text/plain"]) == ("2\n", "3")
    assert book[2]["outputs"] == []
    with pytest.raises(ZeroDivisionError):
        notebook.execute(notebook.cells("# %%\n1 / 0\n"), "test")


def test_tutorials_begin_with_a_title_and_say_what_they_show():
    notebook = load("notebook")
    sources = sorted((DOCS / "tutorials").glob("*.py"))
    assert len(sources) == 6
    for source in sources:
        first = notebook.cells(source.read_text())[0]["source"]
        assert first.startswith("# ")
        assert len(first.split("\n\n")) >= 2


def test_every_benchmark_has_a_table_with_its_command_and_every_page_a_place():
    page = load("benchmarks_page")
    text = (DOCS / "benchmarks.md").read_text()
    named = re.findall(r"<!-- generated: benchmark ([\w -]+) -->", text)
    tables = [page.one(ROOT, name) for name in named] + page.rest(ROOT).split("### ")[1:]
    assert all("*Command:* `python" in one or "Not measured yet" in one for one in tables)
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"readings.md"}
    assert sorted(one for one in pages if one not in nav) == []
