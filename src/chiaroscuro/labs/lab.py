"""A lab: one file per experiment of a paper. The folder is the index.

`labs/<bib key>/<name>.py` is found because it is there, not by being registered. Title and claims
are read from its text, so a list of labs costs neither torch nor time; `Lab.module` imports it.
"""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from chiaroscuro import InputError

__all__ = ["SCALES", "Keep", "Lab", "all_labs", "at_once", "chosen"]

SCALES = ("quick", "laptop", "long", "paper")
"""Seconds, minutes, hours on two cores, and the paper's own numbers."""

Keep = Callable[[str, Callable[[], Any]], Any]
"""`keep(name, piece)`: the stored value of that piece of a run, or `piece()` (and store it)."""


def at_once(name: str, piece: Callable[[], Any]) -> Any:
    """A `Keep` that keeps nothing.

    Example:
        >>> at_once("seed 0", lambda: 42)
        42
    """
    return piece()


@dataclass(frozen=True)
class Lab:
    """One experiment, before it is imported.

    Args:
        paper: its key in `references.bib`, the name of the folder.
        name: of the file.
        title: the first line of its header.
        claims: their ids, in order.
    """

    paper: str
    name: str
    title: str
    claims: tuple[str, ...]

    @property
    def module(self) -> ModuleType:
        """The lab itself: `Settings`, `QUICK`, `LAPTOP`, `PAPER`, `run`, `claims`, `figure`."""
        return importlib.import_module(f"chiaroscuro.labs.{self.paper}.{self.name}")

    def settings(self, scale: str) -> Any:
        """The preset of a scale, one of `SCALES`.

        A lab that gains nothing from hours has no `LONG`: there it runs at its laptop scale.
        """
        missing = scale == "long" and not hasattr(self.module, "LONG")
        return getattr(self.module, "LAPTOP" if missing else scale.upper())

    @property
    def topics(self) -> tuple[str, ...]:
        """The ids of the list of claims that this lab is about: `V4` of `V4.limit`."""
        return tuple(dict.fromkeys(one.split(".")[0] for one in self.claims))


def all_labs() -> list[Lab]:
    """Every lab there is, by paper and by the first claim.

    Example:
        >>> [lab.name for lab in all_labs() if "V4" in lab.topics]
        ['atoms']
    """
    here = Path(__file__).parent
    labs = [_read(path) for path in here.glob("*/[a-z]*.py")]
    return sorted(labs, key=lambda lab: (lab.paper, lab.claims))


@cache
def _read(path: Path) -> Lab:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    title = (ast.get_docstring(tree) or "").splitlines()
    ids = [
        str(call.args[0].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("Stated", "Erratum", "Remark")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    ]
    if not (title and ids):
        raise InputError(f"the lab `{path.parent.name}/{path.stem}` needs a header and claims.")
    return Lab(path.parent.name, path.stem, title[0].rstrip("."), tuple(ids))


def chosen(what: Sequence[str], labs: Iterable[Lab] | None = None) -> list[Lab]:
    """The labs that words mean: a lab's name, a paper's key, or a claim's id.

    Example:
        >>> [lab.name for lab in chosen(["V4", "atoms"])]
        ['atoms']
        >>> chosen(["atom"])
        Traceback (most recent call last):
        chiaroscuro.errors.InputError: `reproduce` knows no lab, paper or claim `atom`; did you ...
    """
    labs = all_labs() if labs is None else list(labs)
    taken = []
    for word in what:
        ours = [lab for lab in labs if word.lower() in {x.lower() for x in _words(lab)}]
        if not ours:
            known = sorted({x for lab in labs for x in _words(lab)})
            close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
            near = f"; did you mean `{close[0]}`?" if close else "; see `chiaro reproduce --list`."
            raise InputError(f"`reproduce` knows no lab, paper or claim `{word}`{near}")
        taken += ours
    return [lab for lab in labs if lab in taken]


def _words(lab: Lab) -> set[str]:
    return {lab.name, f"{lab.paper}/{lab.name}", lab.paper, *lab.topics, *lab.claims}
