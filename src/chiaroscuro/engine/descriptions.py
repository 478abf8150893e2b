"""What a run remembers of an object without a notation, and whether another one is like it.

An object is described by its name, the names and shapes of its tensors, the values of its
attributes, and a digest of the compiled code of its functions where that is one's own: of a class
its methods, of a function its closure and the functions and constants that it names. What comes
from installed packages is compared by name and attributes, not by code. Nothing is run for this.

Not compared: weights, which come from the checkpoint; what a function reads from files, the
clock or lists outside of it; objects without attributes, such as random generators; code, where
the Python version is another.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chiaroscuro.data import Dataset
from chiaroscuro.engine.fingerprint import fingerprint
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.spec import notation

__all__ = ["describe", "import_path", "require_fit", "require_same"]

MOST = 500
"""Values and functions of an object that are compared, at most."""


def import_path(value: Any) -> str:
    """Return where an object comes from: of a function its own name, else that of its class.

    Example:
        >>> import_path(nn.Linear(1, 1)), import_path(nn.functional.relu)
        ('torch.nn.modules.linear.Linear', 'torch.nn.functional.relu')
    """
    named = (
        value if hasattr(value, "__qualname__") and hasattr(value, "__module__") else type(value)
    )
    return f"{named.__module__}.{named.__qualname__}".replace("<", "").replace(">", "")


def describe(value: Any) -> dict[str, Any]:
    """Return what can be known of an object and compared later.

    Args:
        value: a module, an objective, a view, or any function.

    Example:
        >>> describe(functools.partial(nn.functional.dropout, p=0.1))["values"]
        {'func': 'torch.nn.functional.dropout', "keywords['p']": '0.1'}
    """
    known: dict[str, Any] = {"path": import_path(value), "text": _text(value)}
    if isinstance(value, nn.Module):
        known |= _shapes(value.state_dict())
    walk = _Walk()
    walk.look(value, "")
    known["values"] = dict(list(walk.values.items())[:MOST])
    known["code"] = dict(sorted(walk.code.items())[:MOST])
    known["python"] = ".".join(map(str, sys.version_info[:2]))
    return known


def _text(value: Any) -> str:
    try:
        text = notation(value)
    except ChiaroError:
        return import_path(value)
    return import_path(value) if text.startswith("<") else text


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of tensors and of their elements, and a digest of names and shapes."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    listed = "\n".join(f"{name} {tuple(tensors[name].shape)}" for name in sorted(tensors))
    return {
        "tensors": len(tensors),
        "parameters": sum(value.numel() for value in tensors.values()),
        "sha256": hashlib.sha256(listed.encode()).hexdigest(),
    }


# ---- comparing ----


def require_same(where: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Refuse objects that are not like those a run began with; return what could not be compared.

    Args:
        where: the run, for people.
        then: the descriptions in its folder.
        now: of the objects given now.
    """
    notes: list[str] = []
    for name in then.keys() & now.keys():
        was, is_ = then[name], now[name]
        apart = _differences(was, is_, code=True)
        need(
            not apart,
            lambda name=name, was=was, is_=is_, apart=apart: (
                f"Resuming `{where}` needs the {name} it began with, "
                f"`{was.get('text', was.get('path'))}`; received "
                f"`{is_.get('text', is_.get('path'))}`: {'; '.join(apart)}. A changed one "
                "begins a new run."
            ),
        )
        if "code" in was and was.get("python") != is_.get("python") and is_.get("code"):
            notes.append(
                f"The code of {name} `{is_['path']}` is not compared: Python "
                f"{was.get('python')} then and {is_.get('python')} now."
            )
    return notes


def require_fit(where: str, name: str, value: Any, known: Mapping[str, Any]) -> None:
    """Refuse an object that is not like the one a run was trained with, with numbers.

    Code may have changed since.

    Args:
        where: the run, for people.
        name: name of the ingredient.
        value: the object that is given now; data as a `Dataset`.
        known: what the run remembers of it.
    """
    start = f"`{where}` was trained with {name}=`{known.get('path')}`"
    if isinstance(value, Dataset):
        now = fingerprint(value)
        rows, sha256 = int(known.get("rows", 0)), str(known.get("sha256"))
        need(now.rows == rows, lambda: f"{start} of {rows} rows; received {now.rows}.")
        need(
            now.sampled == sha256,
            lambda: (
                f"{start} of {rows} rows; those received have other ids, labels or contents "
                f"(sha256 {sha256[:8]}, now {now.sampled[:8]})."
            ),
        )
        return
    seen = describe(value)
    if "tensors" in known and seen.get("sha256") != known.get("sha256"):
        raise InputError(
            f"{start}, {known['parameters']:,} numbers in {known['tensors']} tensors; received "
            f"`{import_path(value)}` with {seen.get('parameters', 0):,} in "
            f"{seen.get('tensors', 0)}, of other names or shapes."
        )
    apart = _differences(known, seen, code=False)
    need(not apart, lambda: f"{start}; received `{import_path(value)}`: {'; '.join(apart)}.")


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], code: bool) -> list[str]:
    """Return a phrase for each thing that differs, of those that both know."""
    short = lambda value: value[:8] if isinstance(value, str) and len(value) == 64 else value
    last = lambda path: str(path).rpartition(".")[2]
    apart = []
    if last(then.get("path")) != last(now.get("path")):
        apart.append(f"`{then.get('path')}` then and `{now.get('path')}` now")
    for key in ("rows", "parameters", "tensors", "sha256", "d"):
        was, is_ = then.get(key), now.get(key)
        if was != is_ and key in then and key in now:
            apart.append(f"{key} {short(was)} then and {short(is_)} now")
    if apart:
        return apart
    phrases = {"values": "`{}` {} then and {} now"}
    if code and then.get("python") == now.get("python"):
        phrases["code"] = "the code of `{}` {} then and {} now"
    for table, phrase in phrases.items():
        if table not in then or table not in now:
            continue  # an older run
        was, is_ = then[table], now[table]
        names = [n for n in (*was, *(set(is_) - set(was))) if was.get(n) != is_.get(n)]
        none = "absent"
        apart += [phrase.format(n, was.get(n, none), is_.get(n, none)) for n in names[:3]]
        if len(names) > 3:
            apart.append(f"and {len(names) - 3} more")
    return apart


# ---- looking into an object ----

_OF_MODULES = frozenset(vars(nn.Module())) | {"training"}


class _Walk:
    """Values and digests of code inside an object, by their names."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.code: dict[str, str] = {}
        self.seen: list[Any] = []

    def look(self, value: Any, name: str) -> None:
        """Add a value and what is inside it."""
        if len(self.values) >= MOST:
            return
        if (plain := _plain(value)) is not None:
            self.values[name] = plain
            return
        if any(value is other for other in self.seen):
            return
        self.seen.append(value)
        inner = f"{name}." if name else ""
        if isinstance(value, list | tuple):
            for place, item in enumerate(value):
                self.look(item, f"{name}[{place}]")
        elif isinstance(value, Mapping):
            for key in sorted(value, key=repr):
                self.look(value[key], f"{name}[{key!r}]")
        elif isinstance(value, functools.partial):
            self.look(value.func, f"{inner}func")
            self.look(value.args, f"{inner}args")
            self.look(value.keywords, f"{inner}keywords")
        elif isinstance(value, types.MethodType):
            self.look(value.__func__, f"{inner}function")
            self.look(value.__self__, f"{inner}self")
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            if name:
                self.values[name] = import_path(value)
            self._functions(value, inner)
        else:
            if name:
                self.values[name] = import_path(value)
            self._functions(type(value), inner)
            for key, item in _attributes(value):
                self.look(item, f"{inner}{key}")

    def _functions(self, value: Any, inner: str) -> None:
        """Add the code of a function or of the methods of a class, where it is one's own."""
        if isinstance(value, type):
            for base in value.__mro__:
                for item in vars(base).values() if _is_own(base) else ():
                    inside = getattr(item, "__func__", getattr(item, "fget", item))
                    if isinstance(inside, types.FunctionType):
                        self._function(inside, inner)
        elif isinstance(value, types.FunctionType) and _is_own(value):
            self._function(value, inner)

    def _function(self, function: types.FunctionType, inner: str) -> None:
        path = function.__qualname__.replace("<", "").replace(">", "")
        digest = _of_code(function.__code__)
        if self.code.get(path) == digest or len(self.code) >= MOST:
            return
        while path in self.code:  # another of the same name
            path += "'"
        self.code[path] = digest
        for name, value in _outside(function):
            if isinstance(value, types.FunctionType | type):
                if _is_own(value):
                    self._functions(value, inner)
            elif not isinstance(value, list | dict | set | types.ModuleType):
                self.look(value, f"{inner}{name}")


def _plain(value: Any) -> str | None:
    """Return a value as text where it has nothing inside; None for others."""
    if isinstance(value, str | bytes):
        text = repr(value)
        return text if len(text) <= 100 else _digest(text.encode())
    if value is None or isinstance(value, bool | int | float | complex | np.generic):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device | torch.Size | range | slice):
        return repr(value)
    if isinstance(value, set | frozenset):
        return repr(sorted(_plain(item) or import_path(item) for item in value))
    if isinstance(value, Tensor):
        if value.device.type == "meta" or value.requires_grad:  # it learns
            return f"{value.dtype} {tuple(value.shape)}"
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {_digest(raw.tobytes())}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype} {value.shape} {_digest(np.ascontiguousarray(value).tobytes())}"
    return None


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object was made with: no weights, nothing that is computed once and kept."""
    held = getattr(value, "__dict__", {})
    kind = type(value)
    public_only = not (_is_own(kind) or isinstance(value, nn.Module))
    for name, item in held.items():
        if isinstance(value, nn.Module) and name in _OF_MODULES:
            continue
        if name.startswith("_") and (public_only or name.startswith("__")):
            continue
        if isinstance(getattr(kind, name, None), functools.cached_property):
            continue
        yield name, item
    if isinstance(value, nn.Module):
        yield from value._modules.items()
    for base in kind.__mro__:
        for name in getattr(base, "__slots__", ()) if _is_own(base) else ():
            if not name.startswith("__") and hasattr(value, name):
                yield name, getattr(value, name)


def _outside(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function takes from around it: defaults, its closure, and global names."""
    for place, value in enumerate(function.__defaults__ or ()):
        yield f"{function.__name__} default {place}", value
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__" and _filled(cell):
            yield name, cell.cell_contents
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        fixed = isinstance(value, bool | int | float | str | tuple | types.FunctionType | type)
        if fixed and not name.startswith("__"):
            yield name, value


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - empty where a name is bound later
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> set[str]:
    """Return the global names and attributes that code uses, inner functions' too."""
    inside = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inside))


def _of_code(code: types.CodeType) -> str:
    """Return a digest of compiled code: comments, docstrings and places do not count."""

    def lines(code: types.CodeType) -> Iterator[str]:
        yield f"{code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]} {code.co_flags}"
        for one in dis.get_instructions(code):
            if isinstance(one.argval, types.CodeType):
                yield from lines(one.argval)
            elif isinstance(one.argval, frozenset):
                yield f"{one.opname} {sorted(map(repr, one.argval))}"
            else:
                yield f"{one.opname} {one.argval!r}"

    return _digest("\n".join(lines(code)).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _is_own(value: Any) -> bool:
    """Return whether a class or function is neither of this package nor of an installed one."""
    module = str(getattr(value, "__module__", None))
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", "chiaroscuro", "None"):
        return False
    file = str(getattr(sys.modules.get(module), "__file__", None) or "")
    return not any(f"{folder}-packages" in file for folder in ("site", "dist"))
