"""Read pickles of plain data and numpy arrays without running them.

A pickle is a program for a small stack machine, and the machine may call any function there is.
This one knows only the instructions that build dictionaries, lists, tuples, strings, numbers and
arrays; a few names of numpy are recognised as *names* and never imported or called. Everything else
is refused. A restricted `pickle.Unpickler` would not do: it keeps its memo in a list that an
instruction of five bytes makes 34 GB long.
"""

from __future__ import annotations

import pickletools
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.errors import ChiaroError, InputError

__all__ = ["read_pickle"]

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",  # how Python 3 writes bytes for Python 2
    ("__builtin__", "bytes"): "bytes",
}
_DTYPE = re.compile(r"[<>|=]?([iu][1248]|f[48]|b1)")
_PUSH = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


class _Name:
    """A name that a pickle mentions; it stands for nothing that could be called."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Array:
    """An array while it is built: first the promise, then its shape, type and bytes."""

    def __init__(self) -> None:
        self.value: NDArray[Any] | None = None


class _Dtype:
    def __init__(self, text: str) -> None:
        self.text = text


class _RefusedError(Exception):
    pass


def read_pickle(path: str | Path) -> Any:
    """Return the data in a pickle of dictionaries, lists, strings, numbers and numpy arrays.

    Python 2's byte strings are read as text, one character a byte. A pickle that asks for anything
    else, a class, a call, an extension, is refused with the name it asked for.

    Args:
        path: the file.

    Example:
        >>> import pickle, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "p"
        >>> _ = path.write_bytes(pickle.dumps({"labels": [6, 9], "data": np.arange(3)}, protocol=2))
        >>> read_pickle(path)
        {'labels': [6, 9], 'data': array([0, 1, 2])}
        >>> _ = path.write_bytes(pickle.dumps(print))
        >>> read_pickle(path)
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `...` is refused at byte ...: it asks for
        `builtins.print`; ...
    """
    path = Path(path)
    machine = _Machine()
    at = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged text may hold odd escapes: nobody's warning
            for opcode, argument, position in pickletools.genops(read_regular(path)):
                at = position or 0
                if opcode.name == "STOP":
                    return _plain(machine.finish())
                machine.run(opcode.name, argument)
    except _RefusedError as refusal:
        raise InputError(
            f"`{path}` is refused at byte {at}: {refusal}; only plain data and numpy arrays are "
            "read from a pickle, and none of its code is run."
        ) from None
    except ChiaroError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"`{path}` is damaged at byte {at}, or is no pickle: {error}") from error
    raise InputError(f"`{path}` is cut short: it ends at byte {at} without a stop.")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def finish(self) -> Any:
        if len(self.stack) != 1:
            raise _RefusedError(f"it leaves {len(self.stack)} values where one is expected")
        return self.stack[0]

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _RefusedError("it takes a value from an empty stack")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise _RefusedError(f"it fills something that is no {kind.__name__}")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise _RefusedError("it looks for a mark that it never set")

    def run(self, op: str, argument: Any) -> None:
        match op:
            case "PROTO" | "FRAME":
                return
            case "MARK":
                self.stack.append(_MARK)
            case _ if op in _PUSH:
                self.stack.append(argument)
            case _ if op in _CONSTANTS:
                self.stack.append(_CONSTANTS[op])
            case _ if op in _TUPLES:
                values = [self.pop() for _ in range(_TUPLES[op])]
                self.stack.append(tuple(reversed(values)))
            case "TUPLE":
                self.stack.append(tuple(self.since_mark()))
            case "EMPTY_LIST":
                self.stack.append([])
            case "LIST":
                self.stack.append(self.since_mark())
            case "EMPTY_DICT":
                self.stack.append({})
            case "DICT":
                values = self.since_mark()
                self.stack.append({})
                self.fill(values)
            case "APPEND":
                value = self.pop()
                self.top(list).append(value)
            case "APPENDS":
                values = self.since_mark()
                self.top(list).extend(values)
            case "SETITEM":
                value, key = self.pop(), self.pop()
                self.fill([key, value])
            case "SETITEMS":
                self.fill(self.since_mark())
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[int(argument)] = self.top(object)
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.top(object)
            case "GET" | "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[int(argument)])
            case "GLOBAL":
                self.stack.append(_allowed_name(*str(argument).split(" ", 1)))
            case "STACK_GLOBAL":
                name, module = self.pop(), self.pop()
                self.stack.append(_allowed_name(module, name))
            case "REDUCE":
                arguments, called = self.pop(), self.pop()
                self.stack.append(_reduce(called, arguments))
            case "BUILD":
                state = self.pop()
                _build(self.top(object), state)
            case _:
                raise _RefusedError(f"it uses the instruction `{op}`")

    def fill(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise _RefusedError("it gives a dictionary a key without a value")
        into = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | bytes | int):
                raise _RefusedError(f"it uses a {type(key).__name__} as a key")
            into[key] = value


def _allowed_name(module: Any, name: Any = "") -> _Name:
    if (module, name) not in _ALLOWED:
        raise _RefusedError(f"it asks for `{str(module)[:60]}.{str(name)[:60]}`")
    return _Name(_ALLOWED[module, name])


def _reduce(called: Any, arguments: Any) -> Any:
    """Return what numpy's own pickles mean by these names; nothing is called."""
    name = called.name if isinstance(called, _Name) else type(called).__name__
    match name, arguments:
        case "reconstruct", (_Name(name="ndarray"), *_):
            return _Array()
        case "dtype", (str(text), *_) if _DTYPE.fullmatch(text):
            return _Dtype(text)
        case "bytes", ():
            return b""
        case "encode", (str(text), "latin1" | "latin-1"):
            return text.encode("latin-1")
    raise _RefusedError(f"it calls `{name}` in a way that numpy's arrays of numbers do not")


def _build(target: Any, state: Any) -> None:
    match target, state:
        case _Dtype(), (int(), str(order), *_) if order in ("<", ">", "|", "="):
            target.text = order + target.text.lstrip("<>|=")
        case _Array(), (int(), tuple(shape), _Dtype(text=text), bool(fortran), str() | bytes()):
            raw = state[4].encode("latin-1") if isinstance(state[4], str) else state[4]
            dtype = np.dtype(text)
            count = 1
            for side in shape:
                if not isinstance(side, int) or side < 0:
                    raise _RefusedError(f"it gives an array a side of {side!r}")
                count *= side
            if count * dtype.itemsize != len(raw):
                raise _RefusedError(
                    f"it gives an array of shape {shape} {len(raw)} bytes instead of "
                    f"{count * dtype.itemsize}"
                )
            flat = np.frombuffer(raw, dtype)
            target.value = flat.reshape(shape, order="F" if fortran else "C")
        case _:
            raise _RefusedError(
                f"it builds a {type(target).__name__.strip('_').lower()} of other parts"
            )


def _plain(value: Any) -> Any:
    """Return the outermost dictionary, list or array with its arrays finished."""
    if isinstance(value, dict):
        return {_text(k): _finished(v) for k, v in value.items()}
    return [_finished(v) for v in value] if isinstance(value, list) else _finished(value)


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _finished(value: Any) -> Any:
    if isinstance(value, _Name | _Dtype):
        raise _RefusedError("it leaves a name where data should be")
    if isinstance(value, _Array):
        if value.value is None:
            raise _RefusedError("it leaves an array without contents")
        return value.value
    return value
