"""One notation, `Gaussian(tau=0.1)` <-> object, for Python, command line, TOML and reports.

`notation` writes an object from its constructor's signature; `parse` reads the text back with
`ast` in a closed set of names. Nothing is evaluated: the text can build the objects it is allowed
to name and nothing else, however hostile it is.
"""

import ast
import difflib
import functools
import inspect
import itertools
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from chiaroscuro.errors import ChiaroError, SpecError

__all__ = ["notation", "parse", "parts", "same", "say_parameters"]

MAX_CHARS = 100_000
MAX_DEPTH = 50
MAX_ELEMENTS = 65_536
MAX_BITS = 1024

_OPAQUE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    functools.partial,
)
# what a constructor may raise over a wrong argument; a sentence of its own passes through
_FAILURES = (
    *(TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RuntimeError),
    MemoryError,
)
_CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "true": True, "false": False}
_CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Subscript: "indexing",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a generator",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.IfExp: "a condition",
    ast.BoolOp: "logic",
    ast.Compare: "a comparison",
    ast.BinOp: "arithmetic",
    ast.UnaryOp: "arithmetic",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Starred: "unpacking",
    ast.Constant: "a literal of another kind",
    ast.Call: "a call of something other than a name",
    ast.Await: "an await",
}


_ALIASES = {
    "tau": "temperature temp t T Tau bandwidth length_scale lengthscale softmax_temperature",
    "nu": "df degrees_of_freedom alpha",
    "gamma": "power exponent beta",
    "p": "power exponent norm",
    "kernel": "similarity distance metric similarity_fn",
    "negatives": "negative candidates negative_mode",
    "redundancy": "lambda_param lambd lmbda lambda_ lamb",
    "invariance": "sim_coeff lambda_param sim_loss_weight",
    "variance": "std_coeff mu_param var_loss_weight",
    "covariance": "cov_coeff nu_param cov_loss_weight",
}
"""Parameters and what other libraries and papers call them."""
_SCALES = {"scale", "s", "logit_scale", "beta", "inv_tau", "inverse_temperature"}
"""Factors that multiply, where tau divides."""


# ---- writing ----


def notation(obj: object) -> str:
    """Return the text that `parse` reads back as `obj`.

    Every constructor parameter is the attribute of the same name, and all are written (but None
    where that is the default), so that a saved notation keeps its meaning if a default changes. A
    value without a notation (a function, a dictionary) appears as `<name>`, which `parse` refuses:
    such an object prints, and cannot be read back.

    Args:
        obj: a literal, a tensor or array, a tuple or list, or an object made of these.

    Example:
        >>> notation((1, 0.5, None, "both", [1.0] * 64 + [0.7] * 64))
        "(1, 0.5, None, 'both', [1.0] * 64 + [0.7] * 64)"
    """
    return _write(obj, [], 0)


def same(a: object, b: object) -> bool:
    """Return whether two objects have the same type and the same notation.

    Example:
        >>> same([1.0] * 9, [1.0] * 9), same(1, 1.0)
        (True, False)
    """
    opaque_a: list[object] = []
    opaque_b: list[object] = []
    return (
        type(a) is type(b)
        and _write(a, opaque_a, 0) == _write(b, opaque_b, 0)
        and all(x is y for x, y in zip(opaque_a, opaque_b, strict=True))
    )


def parts(obj: object) -> Iterator[object]:
    """Yield the object and every object inside it, outermost first.

    Example:
        >>> list(parts((1, (2.0, "three"))))
        []
    """
    yield from _parts(obj, 0)


def _parts(obj: object, depth: int) -> Iterator[object]:
    _bound(depth)
    if isinstance(obj, tuple | list):
        inside: Iterator[object] = iter(obj)
    elif _is_object(obj):
        yield obj
        inside = (value for _, value in _arguments(obj))
    else:
        return
    for value in inside:
        yield from _parts(value, depth + 1)


def _write(value: Any, opaque: list[object], depth: int) -> str:
    _bound(depth)
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, tuple | list):
        return _write_sequence(value, opaque, depth)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return _write(value.tolist(), opaque, depth + 1)
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind.__repr__(value)
    if _is_object(value):
        return _write_object(value, opaque, depth)
    opaque.append(value)
    return f"<{getattr(value, '__name__', type(value).__name__)}>"


def _write_sequence(values: tuple | list, opaque: list[object], depth: int) -> str:
    texts = [_write(value, opaque, depth + 1) for value in values]
    plain = _bracket(values, texts)
    if len(values) <= 4 or not all(isinstance(value, int | float) for value in values):
        return plain
    pieces: list[str] = []
    single: list[str] = []
    for text, run in itertools.groupby(texts):
        count = sum(1 for _ in run)
        if count < 3:
            single += [text] * count
            continue
        if single:
            pieces.append(_bracket(values, single))
            single = []
        pieces.append(f"{_bracket(values, [text])} * {count}")
    if single:
        pieces.append(_bracket(values, single))
    short = " + ".join(pieces)
    return short if len(short) < len(plain) and len(pieces) < MAX_DEPTH else plain


def _bracket(like: tuple | list, texts: list[str]) -> str:
    inner = ", ".join(texts)
    if isinstance(like, list):
        return f"[{inner}]"
    return f"({inner},)" if len(texts) == 1 else f"({inner})"


def _write_object(obj: object, opaque: list[object], depth: int) -> str:
    arguments = list(_arguments(obj))
    many = any(p.kind is p.VAR_POSITIONAL for p, _ in arguments)
    written = []
    for parameter, value in arguments:
        text = _write(value, opaque, depth + 1)
        by_position = many and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if by_position or parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            written.append(text)
        elif value is not None or parameter.default is not None:
            written.append(f"{parameter.name}={text}")
    return f"{type(obj).__name__}({', '.join(written)})"


def _is_object(value: object) -> bool:
    if isinstance(value, _OPAQUE) or hasattr(value, "tolist"):
        return False
    return type(value).__module__ != "builtins" and _signature(type(value)) is not None


def _arguments(obj: object) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Yield each constructor parameter with its value; `*args` gives one pair per value."""
    signature = _signature(type(obj))
    for parameter in signature.parameters.values() if signature else ():
        name = f"`{type(obj).__name__}`"
        if parameter.kind is parameter.VAR_KEYWORD:
            raise SpecError(f"{name} takes `**{parameter.name}`, which has no notation.")
        if not hasattr(obj, parameter.name):
            raise SpecError(
                f"{name} needs an attribute `{parameter.name}` that holds what its constructor "
                "received; it has none, so it cannot be written down."
            )
        value = getattr(obj, parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((parameter, item) for item in value)
        else:
            yield parameter, value


def _signature(call: Callable) -> inspect.Signature | None:
    if isinstance(call, type):
        owner = next(kind for kind in call.__mro__ if "__init__" in vars(kind))
        if owner.__module__ == "torch.nn.modules.module":  # a module without a constructor
            return inspect.Signature()
    try:
        return inspect.signature(call)
    except (TypeError, ValueError):  # some builtins do not tell
        return None


def _bound(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise SpecError(f"The notation nests at most {MAX_DEPTH} levels; received more.")


# ---- reading ----


def parse(text: str, names: Mapping[str, Callable]) -> Any:
    """Return the object that `text` denotes, built from `names` alone.

    Literals, tuples, lists, `[1.0] * 64 + [0.7] * 64`, and calls of the given names. Anything else
    is refused with one sentence; nothing is executed but the constructors named.

    Args:
        text: at most 100,000 characters, nested at most 50 deep.
        names: what may be called.

    Example:
        >>> parse("Fraction(1, 2)", {"Fraction": __import__("fractions").Fraction})
        Fraction(1, 2)
        >>> parse("Fractoin(1)", {"Fraction": int})
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.SpecError: `Fractoin` is not known here; did you mean `Fraction`?
    """
    if not isinstance(text, str):
        raise SpecError(f"`parse(text)` needs a string; received `{type(text).__name__}`.")
    if len(text) > MAX_CHARS:
        raise SpecError(f"A text has at most {MAX_CHARS} characters; received {len(text)}.")
    if not text.strip():
        raise SpecError("The text is empty; write an object such as `Gaussian(tau=0.1)`.")
    text = text.strip()
    return _Reader(text, names).read(_tree(text), 0)


def _tree(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the text is data: its style is nobody's warning
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        where = f"line {error.lineno or 1}, character {error.offset or 1}"
        raise SpecError(f"`{_short(text)}` is not well formed at {where}: {error.msg}.") from None
    except ValueError:
        raise SpecError(f"`{_short(text)}` holds characters that no text may hold.") from None
    except (RecursionError, MemoryError):
        raise SpecError(f"The notation nests at most {MAX_DEPTH} levels; received more.") from None


class _Reader:
    """Turns a syntax tree into objects, with a budget of elements for the whole text."""

    def __init__(self, text: str, names: Mapping[str, Callable]) -> None:
        self.text = text
        self.names = names
        self.elements = 0

    def read(self, node: ast.expr, depth: int) -> Any:
        _bound(depth)
        match node:
            case ast.Constant(value=None | bool() | float() | str()):
                return node.value
            case ast.Constant(value=int(number)):
                if number.bit_length() > MAX_BITS:
                    raise SpecError(
                        f"An integer has at most {MAX_BITS} bits; received {number.bit_length()}."
                    )
                return number
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                number = self.read(node.operand, depth + 1)
                if type(number) in (int, float):
                    return -number if isinstance(node.op, ast.USub) else number
            case ast.Tuple():
                return tuple(self.count([self.read(item, depth + 1) for item in node.elts]))
            case ast.List():
                return self.count([self.read(item, depth + 1) for item in node.elts])
            case ast.BinOp(op=ast.Add() | ast.Mult()):
                return self.join(node, depth)
            case ast.Name():
                return self.constant(node.id)
            case ast.Call(func=ast.Name()):
                return self.call(node, depth)
        return self.refuse(node)

    def refuse(self, node: ast.AST) -> NoReturn:
        source = _short(ast.get_source_segment(self.text, node) or self.text)
        kind = _CONSTRUCTS.get(type(node), type(node).__name__)
        raise SpecError(
            f"`{source}` is {kind}, which the notation does not have; it has objects, numbers, "
            "strings, tuples and lists."
        )

    def count(self, values: list) -> list:
        self.elements += len(values)
        if self.elements > MAX_ELEMENTS:
            raise SpecError(
                f"A text holds at most {MAX_ELEMENTS} elements; received {self.elements} or more."
            )
        return values

    def join(self, node: ast.BinOp, depth: int) -> Any:
        """`a + b + ...` and `[x] * count`, of lists or of tuples; never of numbers."""
        terms: list[ast.expr] = []
        term: ast.expr = node
        while isinstance(term, ast.BinOp) and isinstance(term.op, ast.Add):
            terms.append(term.right)
            term = term.left
        values = [self.repeat(term, depth + 1) for term in (term, *reversed(terms))]
        kinds = {type(value) for value in values}
        if kinds != {list} and kinds != {tuple}:
            self.refuse(node)
        return kinds.pop()(itertools.chain.from_iterable(values))

    def repeat(self, node: ast.expr, depth: int) -> Any:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            return self.read(node, depth)
        values, times = self.read(node.left, depth + 1), self.read(node.right, depth + 1)
        if type(values) not in (list, tuple) or type(times) is not int or times < 0:
            self.refuse(node)
        if not all(type(value) in (int, float, bool) for value in values):
            raise SpecError(f"`{_short(self.text)}` repeats a list; only numbers may be repeated.")
        if not values:
            return values
        extra = len(values) * (times - 1)
        if self.elements + extra > MAX_ELEMENTS:
            raise SpecError(
                f"A text holds at most {MAX_ELEMENTS} elements; received "
                f"{_short(str(self.elements + extra))}."
            )
        self.elements += max(extra, 0)
        return values * times

    def constant(self, name: str) -> float:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in self.names:
            raise SpecError(f"`{name}` is a name, not an object; write `{name}()`.")
        raise SpecError(self.unknown(name))

    def unknown(self, name: str) -> str:
        return f"`{_short(name)}` is not known here{_nearest(name, self.names)}"

    def call(self, node: ast.Call, depth: int) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in self.names:
            raise SpecError(self.unknown(name))
        arguments = [self.read(item, depth + 1) for item in node.args]
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise SpecError(f"`{name}(**...)` is unpacking, which the notation does not have.")
            if keyword.arg in keywords:
                raise SpecError(f"`{name}` receives `{keyword.arg}` twice.")
            keywords[keyword.arg] = self.read(keyword.value, depth + 1)
        return self.make(name, arguments, keywords)

    def make(self, name: str, arguments: list, keywords: dict[str, Any]) -> Any:
        call = self.names[name]
        signature = _signature(call)
        if signature is not None:
            _check(name, signature, arguments, keywords)
        try:
            return call(*arguments, **keywords)
        except ChiaroError:
            raise
        except _FAILURES as error:
            reason = str(error) or type(error).__name__
            raise SpecError(f"`{name}` cannot be made of these arguments: {reason}") from error


def _check(name: str, signature: inspect.Signature, arguments: list, keywords: dict) -> None:
    parameters = list(signature.parameters.values())
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for keyword in keywords:
            if keyword not in known:
                raise SpecError(_unknown(name, keyword, parameters, keywords[keyword]))
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise SpecError(
            f"`{name}` with {len(arguments) + len(keywords)} arguments: {error}; "
            f"{_takes(parameters)}."
        ) from None


def say_parameters(cls: type) -> None:
    """Make the constructor of a class report an unknown parameter in one sentence.

    The sentence names the parameter that is meant, also where another library calls it otherwise
    (`temperature` for `tau`). The signature stays as it is.
    """
    if "__init__" not in vars(cls):
        return
    init = vars(cls)["__init__"]
    parameters = list(inspect.signature(init).parameters.values())[1:]
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

    @functools.wraps(init)
    def checked(self: Any, *arguments: Any, **keywords: Any) -> None:
        for name in keywords:
            if name not in known:
                raise SpecError(_unknown(cls.__name__, name, parameters, keywords[name]))
        init(self, *arguments, **keywords)

    cls.__init__ = checked


def _takes(parameters: Iterable[inspect.Parameter]) -> str:
    listed = ", ".join(f"`{'*' * (p.kind is p.VAR_POSITIONAL)}{p.name}`" for p in parameters)
    return f"it takes {listed}" if listed else "it takes none"


def _unknown(call: str, name: str, parameters: list[inspect.Parameter], value: object) -> str:
    """Return the sentence about a parameter that a constructor does not have."""
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    says = f"`{call}` has no parameter `{_short(name)}`; {_takes(parameters)}"
    meant = {ours for ours, theirs in _ALIASES.items() if name in theirs.split()}
    shown = f"={value!r}" if isinstance(value, int | float) else ""
    if "tau" in known and name in _SCALES:
        return f"{says}. `tau` divides: pass `tau=1/{name}`."
    if "tau" in known and name in ("sigma", "std"):
        return f"{says}. `tau` is a variance: pass `tau={name}**2`."
    for ours in known:
        if ours in meant:
            return f"{says}. It is called `{ours}` here: `{call}({ours}{shown})`."
    if "kernel" in known and (name == "tau" or "tau" in meant):
        return f"{says}. The temperature is the kernel's `tau`: `{call}(Cosine(tau{shown}))`."
    return says + _nearest(name, known)


def _nearest(name: str, known: Mapping[str, Any] | list[str]) -> str:
    folded = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower()[:100], folded, n=1, cutoff=0.6)
    return f"; did you mean `{folded[close[0]]}`?" if close else "."


def _short(text: str, length: int = 60) -> str:
    """One printable line: no line breaks, no control characters, no lone surrogates."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text[:1000].split()))
    return text if len(text) <= length else text[: length - 3] + "..."
