"""Paste what the commands of README.md print into README.md: `python docs/generate/readme.py`.

A block between `<!-- output: name -->` and `<!-- /output -->` holds commands after `$ `. They are
typed in a new folder, one after the other, and each is followed by what it printed, as a person
without a terminal sees it: progress as lines, of which the first and the last are kept.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- output: (\w+) -->\n```\n)(.*?)(```\n<!-- /output -->)", re.DOTALL)
PROGRESS = re.compile(r"^epoch \d+, step ")
WIDTH = 100
SLOW = ("measuring ", "scanning ")
"""How lines begin that a diagnosis prints only where it takes long."""
MORE = "Further checks with more input"
"""What a diagnosis could say of richer files: left out of the README."""


def commands(text: str) -> dict[str, list[str]]:
    """Return the commands of every block, by its name."""
    return {
        name: [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        for _, name, body, _ in BLOCK.findall(text)
    }


def embeddings(path: Path) -> None:
    """Write 2,000 rows of 128 numbers that fill 12 directions, in ten clusters."""
    draw = np.random.default_rng(0)
    centres, basis = draw.normal(size=(10, 12)), draw.normal(size=(12, 128))
    h = (centres[draw.integers(0, 10, 2000)] + 0.5 * draw.normal(size=(2000, 12))) @ basis
    np.save(path, (h + 0.001 * draw.normal(size=h.shape)).astype(np.float32))


def typed(command: str, folder: Path) -> list[str]:
    """Return the lines that a command prints, in a folder."""
    words = shlex.split(command)
    if words[0] == "chiaro":
        words = [sys.executable, "-m", "chiaroscuro.cli", *words[1:]]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"`{command}` ends with status {done.returncode}:\n{done.stdout}")
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    lines = [line for line in lines if not line.startswith(SLOW)]
    if MORE in lines:
        lines = [*lines[: lines.index(MORE)], "..."]
    return shortened(lines)


def shortened(lines: list[str]) -> list[str]:
    """Return the lines with progress cut to its first and last line, and none too wide.

    Example:
        >>> shortened(["a", *(f"epoch {n}, step {n}/9" for n in range(1, 10)), "b"])
        ['a', 'epoch 1, step 1/9', '...', 'epoch 9, step 9/9', 'b']
    """
    progress = [at for at, line in enumerate(lines) if PROGRESS.match(line)]
    kept = []
    for at, line in enumerate(lines):
        if len(progress) > 2 and progress[0] < at < progress[-1] and at in progress:
            if at == progress[1]:
                kept.append("...")
            continue
        wrapped = textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        kept += [line] if len(line) <= WIDTH else wrapped
    return kept


def written(text: str, folder: Path, only: set[str]) -> str:
    """Return the README with the outputs of its blocks."""

    def made(block: re.Match[str]) -> str:
        opening, name, _, ending = block.groups()
        if only and name not in only:
            return block[0]
        lines = []
        for command in commands(block[0])[name]:
            lines += [f"$ {command}", *typed(command, folder)]
        return f"{opening}" + "\n".join(lines) + f"\n{ending}"

    return BLOCK.sub(made, text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        embeddings(Path(place) / "embeddings.npy")
        readme = ROOT / "README.md"
        readme.write_text(
            written(readme.read_text("utf-8"), Path(place), set(sys.argv[1:])), "utf-8"
        )
