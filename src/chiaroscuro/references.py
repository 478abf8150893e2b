"""Which papers an object stands on: the bib keys of its docstring, and their entries.

A docstring names its sources under a line `References:`, on indented lines of bib keys. The one
bibliography is `references.bib`, beside this file in a wheel and at the root of a checkout.
"""

import re
from importlib import resources
from pathlib import Path

from chiaroscuro.errors import ChiaroError
from chiaroscuro.spec import parts

__all__ = ["bibliography", "cited", "keys"]

_ENTRY = re.compile(r"^@\w+\{\s*([^\s,]+)\s*,", re.MULTILINE)
_SECTION = re.compile(r"^([ \t]*)References:[ \t]*\n((?:\1[ \t]+\S.*(?:\n|$))+)", re.MULTILINE)
_KEY = re.compile(r"\b[a-z]+\d{4}[a-z]*\b")


def bibliography() -> dict[str, str]:
    """Return the entries of `references.bib` by key, in their order.

    Example:
        >>> print(bibliography()["tan2024"].splitlines()[0])
        @inproceedings{tan2024,
    """
    beside = resources.files("chiaroscuro") / "references.bib"
    root = Path(__file__).resolve().parents[2] / "references.bib"
    source = beside if beside.is_file() else root
    if not source.is_file():
        raise ChiaroError(f"`references.bib` needs to be beside the package or at {root}.")
    text = source.read_text(encoding="utf-8")
    return {entry[1]: _braced(text, entry.start()) for entry in _ENTRY.finditer(text)}


def _braced(text: str, start: int) -> str:
    depth = 0
    for at in range(text.index("{", start), len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start : at + 1]
    raise ChiaroError(f"`references.bib` leaves a brace open after `{text[start : start + 40]}`.")


def keys(doc: str | None) -> list[str]:
    """Return the bib keys under `References:` in a docstring, in their order.

    Example:
        >>> keys('''One sentence.
        ...
        ...     References:
        ...         tan2024 (eq. 7), chen2020simclr
        ... ''')
        ['tan2024', 'chen2020simclr']
    """
    return [key for section in _SECTION.finditer(doc or "") for key in _KEY.findall(section[2])]


def cited(obj: object) -> list[str]:
    """Return the bib keys of an object and of all objects inside it, or of a class, without
    repetition.
    """
    classes = [obj] if isinstance(obj, type) else [type(part) for part in parts(obj)]
    return list(dict.fromkeys(key for each in classes for key in keys(each.__doc__)))
