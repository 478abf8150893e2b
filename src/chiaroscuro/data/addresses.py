"""The text of a data source: made absolute, or given further arguments."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import Path
from typing import Any

from chiaroscuro.data import find
from chiaroscuro.errors import InputError

__all__ = ["absolute_source", "as_call", "is_source"]


def is_source(text: str) -> bool:
    """Return whether a text names data: a known name, a file or folder, or a call.

    Example:
        >>> is_source("digits"), is_source("no_such_folder/"), is_source("digits(shift=0.1)")
        (True, False, True)
    """
    if text in find._NAMED or find._CALL.fullmatch(text.strip()):
        return True
    return _path(text) is not None


def _path(text: str) -> Path | None:
    """Return the file or folder that a text names, or None."""
    there = [path for path in find._candidates(text) if path.exists()]
    if there:
        return there[0].absolute()
    return find._local().get(text)


def as_call(source: str, **arguments: Any) -> str:
    """Return the call that opens the same data with further arguments.

    A path becomes absolute, so that a run can be evaluated from another folder.

    Args:
        source: a path, or a call.
        arguments: added to the call, such as `test=0.2`; None leaves one out.

    Example:
        >>> as_call("digits(shift=0.1)", size=16)
        'digits(shift=0.1, size=16)'
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    text = absolute_source(source)
    if not find._CALL.fullmatch(text):
        text = text if text in find._NAMED else f"{_reader(text)}({text!r})"
    if not given:
        return text
    added = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if not text.endswith(")"):
        return f"{text}({added})"
    return f"{text[:-1]}{'' if text.endswith('()') else ', '}{added})"


def _reader(text: str) -> str:
    """Return the name of the call that reads a path."""
    path = Path(text)
    if path.is_dir():
        if any(path.glob("*.tar")):
            return "tar"
        saved = ("dataset_info.json", "dataset_dict.json")
        return "hugging_face" if any((path / name).is_file() for name in saved) else "folder"
    read = find._FILES.get(find._ending(path) or "")
    if read is not None:
        wanted = inspect.unwrap(read)
        for name, call in find._CALLS.items():
            if inspect.unwrap(call) is wanted:
                return name
    raise InputError(
        f"`{text}` ends in nothing that can be read; these can: {', '.join(find._FILES)}."
    )


def absolute_source(source: str) -> str:
    """Return a source with its paths made absolute; names stay as they are.

    Args:
        source: a name, a path, or a call whose arguments may be paths.

    Example:
        >>> absolute_source("digits"), absolute_source("digits(shift=0.1)")
        ('digits', 'digits(shift=0.1)')
    """
    text = source.strip()
    if not find._CALL.fullmatch(text) or os.path.exists(text):
        path = None if text in find._NAMED else _path(text)
        return text if path is None else str(path)
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text  # `open_data` says what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            path = _path(f"./{node.value}") if node.value and "\n" not in node.value else None
            if path is not None and not Path(node.value).is_absolute():
                node.value = str(path.resolve())
    return ast.unparse(tree)
