"""List the licences of all pinned packages in `packaging/LICENCES.md`.

    python packaging/licences.py

What is installed is asked; of a package that is not installed here the line that is there stays, so
that several environments may each add theirs.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "packaging" / "LICENCES.md"
HEAD = """# Licences of the packages that are pinned

Written by `packaging/licences.py` from what the packages say of themselves. Chiaroscuro itself is
under Apache-2.0 and contains no code of these.

| package | version | licence |
|---|---|---|
"""


def pins() -> dict[str, str]:
    """Version by name, of all files of constraints."""
    texts = [file.read_text() for file in sorted((ROOT / "constraints").glob("*.txt"))]
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", "\n".join(texts), re.MULTILINE)
    return dict(sorted((name.lower(), version) for name, version in found))


def licence(name: str, version: str) -> str | None:
    """What an installed package says of its licence; None if that version is not installed."""
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    about = package.metadata
    if package.version.partition("+")[0] != version.partition("+")[0]:
        return None
    stated = about.get("License-Expression") or ""
    kinds = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if "License" in c]
    kinds = [kind for kind in kinds if kind != "OSI Approved"]
    short = (about.get("License") or "").strip().split("\n")[0]
    return stated or ", ".join(kinds) or short[:80] or title(package) or "not stated"


def title(package: metadata.Distribution) -> str:
    """The first line of the file of the licence, where that is all there is."""
    texts = (
        package.read_text(f"licenses/{f}") for f in package.metadata.get_all("License-File", [])
    )
    return next((text.strip().split("\n")[0][:80] for text in texts if text), "")


def rows() -> dict[str, tuple[str, str]]:
    """Version and licence by name, as the file has them."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {c[0]: (c[1], c[2]) for c in cells if len(c) == 3 and c[0] not in ("package", "---")}


def main() -> None:
    known = rows()
    lines = []
    for name, version in pins().items():
        found = licence(name, version)
        kept = known[name][1] if known.get(name, ("",))[0] == version else "not asked yet"
        lines.append(f"| {name} | {version} | {found or kept} |")
    FILE.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
