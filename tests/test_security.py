"""The threat model names tests that exist, what builds is pinned, and licences are listed."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pinned() -> dict[str, str]:
    texts = [file.read_text() for file in (ROOT / "constraints").glob("*.txt")]
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", "\n".join(texts), re.MULTILINE)
    return {name.lower(): version for name, version in pins}


def test_every_line_of_the_threat_model_has_its_test():
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert [row for row in rows if "tests" not in row] == []


def test_the_build_is_pinned():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for need in build:
        name, _, version = need.partition("==")
        assert pinned()[name] == version
    for file in (ROOT / "packaging").glob("Dockerfile*"):
        for need in build:
            assert f"pip install --no-cache-dir {need} " in file.read_text(), file


def test_the_licence_of_every_pinned_package_is_listed():
    lines = (ROOT / "packaging" / "LICENCES.md").read_text().splitlines()
    listed = {cells[1].strip(): cells for line in lines if len(cells := line.split("|")) == 5}
    for name, version in pinned().items():
        assert listed[name][2].strip() == version, name
        assert listed[name][3].strip() not in ("", "not asked yet", "not stated"), name
