"""The wheel holds everything it needs and asks for little. Takes some seconds: it builds one."""

import subprocess
import sys
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
