"""The wheel holds everything it needs and asks for little. Takes some seconds: it builds one."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    options = "--no-deps --no-build-isolation --no-index --disable-pip-version-check --quiet"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options.split(), "-w", out, ROOT],
        check=True,
        capture_output=True,
    )
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def text(wheel, ending):
    (name,) = (name for name in wheel.namelist() if name.endswith(ending))
    return wheel.read(name).decode()


def test_every_source_file_is_inside(wheel):
    ours = {
        path.relative_to(SRC).as_posix()
        for path in (SRC / "chiaroscuro").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    assert ours <= set(wheel.namelist())
    assert "chiaroscuro/py.typed" in ours


def test_nothing_else_is_inside(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"chiaroscuro"}


def test_bibliography_licence_and_entry_point_are_inside(wheel):
    assert text(wheel, "chiaroscuro/references.bib") == (ROOT / "references.bib").read_text()
    assert "Apache License" in text(wheel, "/LICENSE")
    assert "chiaro = chiaroscuro.cli:main" in text(wheel, "entry_points.txt")


def test_at_most_ten_core_dependencies(wheel):
    metadata = message_from_string(text(wheel, ".dist-info/METADATA"))
    core = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert 1 <= len(core) <= 10
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_version_is_stated_once(wheel):
    import chiaroscuro

    assert f"Version: {chiaroscuro.__version__}\n" in text(wheel, ".dist-info/METADATA")
    assert chiaroscuro.__version__ not in (ROOT / "pyproject.toml").read_text()


def test_the_wheel_works_away_from_the_checkout(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = (
        "import chiaroscuro, chiaroscuro.references as r; "
        "print(chiaroscuro.__file__, len(r.bibliography()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,  # `-c` puts it first on the path
        capture_output=True,
        text=True,
        check=True,
    )
    file, entries = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert int(entries) >= 21


VIEWS = """
import sys, torch
from chiaroscuro.views import SimCLR, compiled
assert compiled.why_not() == "", compiled.why_not()
x = (torch.arange(2 * 3 * 40 * 40) * 7919 % 256).reshape(2, 3, 40, 40).to(torch.uint8)
y, _ = SimCLR(size=24, blur=1.0)(x, range(2), seed=3)
torch.save(y, sys.argv[1])
print(compiled.library().how)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build it with")
def test_a_binary_wheel_has_compiled_views_without_a_compiler(tmp_path):
    environment = {**os.environ, "CHIARO_COMPILE": "1"}
    options = "--no-deps --no-build-isolation --no-index --disable-pip-version-check --quiet"
    command = [sys.executable, "-m", "pip", "wheel", *options.split(), "-w", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (path,) = tmp_path.glob("*.whl")
    assert path.name.split("-")[2:4] == ["py3", "none"]
    assert not path.name.endswith("-any.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "installed")
    made = {}
    for name, search in (("without", str(tmp_path / "nothing")), ("with", os.environ["PATH"])):
        chosen = {"PATH": search, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", VIEWS, tmp_path / name],
            cwd=tmp_path / "installed",
            env=chosen,
            capture_output=True,
            text=True,
            check=True,
        )
        made[name] = done.stdout.strip()
    assert made["without"].startswith("packaged")
    assert not made["with"].startswith("packaged")
    import torch

    one, two = (torch.load(tmp_path / name) for name in made)
    torch.testing.assert_close(one, two, rtol=0, atol=1 / 255 / 2)


def test_the_citation_and_the_recipe_state_the_version_of_the_package():
    import chiaroscuro

    for file in ("CITATION.cff", "packaging/conda/recipe.yaml"):
        lines = (ROOT / file).read_text().splitlines()
        (stated,) = (
            line.split(": ")[1].strip('"')
            for line in lines
            if line.strip().startswith("version: ") and "{" not in line
        )
        assert stated == chiaroscuro.__version__, file


def test_every_pin_has_its_hash():
    for file in sorted((ROOT / "constraints").glob("*.txt")):
        pins = re.split(r"\n(?=\S)", file.read_text().strip())
        for pin in pins[1:]:
            name, *hashes = pin.split()
            assert re.fullmatch(r"[\w.-]+==[\w.+-]+", name), pin
            assert any(part.startswith("--hash=sha256:") for part in hashes), name


def test_every_extra_is_in_all_and_in_the_makefile():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {n for need in extras["all"] for n in re.findall(r"[\w]+", need.partition("[")[2])}
    assert named == set(extras) - {"all", "test", "check", "docs"}
    (line,) = re.findall(r"^EXTRAS := (.*\\\n.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.replace("\\", "").split()) == named - {"view", "plots", "tune"}
