"""The notation: objects and texts are the same thing twice, and no text is dangerous."""

import ast
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chiaroscuro.spec
from chiaroscuro.errors import InputError, SpecError
from chiaroscuro.spec import notation, parse, parts, same


class Gauss:
    def __init__(self, tau=0.5, name=None):
        self.tau, self.name = tau, name


class Mix:
    def __init__(self, *kernels, weights=None):
        self.kernels, self.weights = kernels, weights


class Slice:
    def __init__(self, inner, start=0, stop=None):
        self.inner, self.start, self.stop = inner, start, stop


class Lead:
    def __init__(self, first, *rest, scale=1):
        self.first, self.rest, self.scale = first, rest, scale


class Positive:
    def __init__(self, x):
        if x <= 0:
            raise InputError(f"`Positive(x={x})` needs `x > 0`; received `{x}`.")
        self.x = x


class Fragile:
    def __init__(self, x=None):
        wrong = {"index": lambda: {}["a"], "name": lambda: x.nothing, "zero": lambda: 1 / 0}
        self.x = wrong.get(x, lambda: x)()


class Array:
    """Stands in for a tensor: anything with `tolist`."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


NAMES = {c.__name__: c for c in (Gauss, Mix, Slice, Lead, Positive, Fragile)}


def read(text):
    return parse(text, NAMES)


# ---- writing ----


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (Gauss(), "Gauss(tau=0.5)"),
        (Gauss(0.5, name="g"), "Gauss(tau=0.5, name='g')"),
        (Gauss(tau=0.1), "Gauss(tau=0.1)"),
        (Gauss(tau=1), "Gauss(tau=1)"),
        (Gauss(tau=1e-300, name="a'b"), 'Gauss(tau=1e-300, name="a\'b")'),
        (Gauss(tau=math.inf), "Gauss(tau=inf)"),
        (Gauss(tau=-math.inf), "Gauss(tau=-inf)"),
        (Gauss(tau=math.nan), "Gauss(tau=nan)"),
        (Gauss(tau=True), "Gauss(tau=True)"),
        (Gauss(tau=Array([0.5, 0.25])), "Gauss(tau=[0.5, 0.25])"),
        (Gauss(tau=Array(0.5)), "Gauss(tau=0.5)"),
        (Gauss(tau=Array(0.25)), "Gauss(tau=0.25)"),
        (Gauss(tau=[1.0] * 64 + [0.7] * 64), "Gauss(tau=[1.0] * 64 + [0.7] * 64)"),
        (Gauss(tau=(1.0,) * 9), "Gauss(tau=(1.0,) * 9)"),
        (Gauss(tau=[1.0] * 4), "Gauss(tau=[1.0, 1.0, 1.0, 1.0])"),
        (Gauss(tau=[1, 2, 3, 4, 5, 6]), "Gauss(tau=[1, 2, 3, 4, 5, 6])"),
        (Gauss(tau=[2.0, 3.0] + [1.0] * 8 + [4.0]), "Gauss(tau=[2.0, 3.0] + [1.0] * 8 + [4.0])"),
        (Gauss(tau=()), "Gauss(tau=())"),
        (Gauss(tau=(1,)), "Gauss(tau=(1,))"),
        (Mix(), "Mix()"),
        (
            Mix(Gauss(0.1), Gauss(), weights=(1.0, 2.0)),
            "Mix(Gauss(tau=0.1), Gauss(tau=0.5), weights=(1.0, 2.0))",
        ),
        (Mix((0.5, Gauss(0.1)), (0.5, Mix())), "Mix((0.5, Gauss(tau=0.1)), (0.5, Mix()))"),
        (Slice(Gauss(), 0, 64), "Slice(inner=Gauss(tau=0.5), start=0, stop=64)"),
        (Lead(1), "Lead(first=1, scale=1)"),
        (Lead(1, 2, 3, scale=2), "Lead(1, 2, 3, scale=2)"),
        (Lead(1, scale=1.0), "Lead(first=1, scale=1.0)"),
    ],
)
def test_an_object_writes_as_its_whole_call_and_reads_back(obj, text):
    assert notation(obj) == text
    assert notation(read(text)) == text
    assert same(read(text), obj) or any(isinstance(v, Array) for v in vars(obj).values())


def test_runs_tell_an_int_from_a_float_from_a_bool():
    values = [1, 1, 1, 1.0, 1.0, 1.0, True, True, True, 0.0, 0.0, 0.0, -0.0, -0.0, -0.0]
    back = read(notation(values))
    assert list(map(repr, back)) == list(map(repr, values))


def test_what_has_no_notation_prints_and_is_refused_by_parse():
    obj = Gauss(tau=math.sqrt)
    assert notation(obj) == "Gauss(tau=<sqrt>)"
    with pytest.raises(SpecError, match="not well formed"):
        read(notation(obj))


def test_same_means_type_and_notation_and_the_same_functions():
    assert same(Gauss(0.5), Gauss())
    assert not same(Gauss(0.5), Gauss(0.25))
    assert not same(Slice(1), Lead(1))
    assert not same(1, 1.0)
    first, second = (lambda t: t), (lambda t: t)
    assert same(Gauss(first), Gauss(first))
    assert not same(Gauss(first), Gauss(second))


def test_an_attribute_must_hold_what_the_constructor_received():
    class Forgetful:
        def __init__(self, tau):
            pass

    with pytest.raises(SpecError, match="`Forgetful` needs an attribute `tau`"):
        notation(Forgetful(1))


def test_keyword_catch_alls_have_no_notation():
    class Loose:
        def __init__(self, **options):
            self.options = options

    with pytest.raises(SpecError, match=r"\*\*options"):
        notation(Loose())


def test_a_cycle_is_a_sentence():
    loop = Gauss()
    loop.tau = loop
    for walk in (notation, lambda obj: list(parts(obj))):
        with pytest.raises(SpecError, match="at most 50 levels"):
            walk(loop)


def test_parts_are_the_objects_outermost_first():
    inner, other = Gauss(0.1), Gauss(0.2)
    mix = Mix((0.5, inner), (0.5, Slice(other)))
    assert [type(part).__name__ for part in parts(mix)] == ["Mix", "Gauss", "Slice", "Gauss"]


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inside: (
        st.lists(inside, max_size=5)
        | st.tuples(inside, inside)
        | st.builds(Gauss, inside, st.none() | st.text(max_size=3))
        | st.lists(inside, max_size=3).map(lambda kernels: Mix(*kernels))
    ),
    max_leaves=12,
)


@given(literals)
def test_every_value_survives_the_round_trip(value):
    text = notation(value)
    back = read(text)
    assert type(back) is type(value)
    assert notation(back) == text


@given(st.lists(st.sampled_from([0.5, 1.0, 2, -0.0, True]), max_size=300))
def test_every_list_survives_run_length_encoding(values):
    back = read(notation(values))
    assert list(map(repr, back)) == list(map(repr, values))


# ---- reading ----


def test_spaces_line_breaks_and_signs_are_allowed():
    assert read("  Gauss( tau =\n .5 )\n").tau == 0.5
    assert read("Gauss(-0.5)").tau == -0.5
    assert read("Gauss(+3)").tau == 3
    assert read("Gauss(tau=-inf)").tau == -math.inf
    assert math.isnan(read("nan"))


SENTENCES = {
    "Gaus(tau=1)": "`Gaus` is not known here; did you mean `Gauss`?",
    "gauss()": "`gauss` is not known here; did you mean `Gauss`?",
    "Zebra()": "`Zebra` is not known here.",
    "Gauss": "`Gauss` is a name, not an object; write `Gauss()`.",
    "Gauss(tua=1)": "`Gauss` has no parameter `tua`; it takes `tau`, `name`; did you mean `tau`?",
    "Mix(kernel=1)": "`Mix` has no parameter `kernel`; it takes `*kernels`, `weights`.",
    "Gauss(1, None, 3)": "too many positional arguments; it takes `tau`, `name`.",
    "Slice()": "missing a required argument: 'inner'; it takes `inner`, `start`, `stop`.",
    "Gauss(1, tau=2)": "multiple values for argument 'tau'",
    "Gauss(tau=1, tau=2)": "`Gauss` receives `tau` twice.",
    "Gauss(tau=": "line 1, character 6",
    "Gauss(tau=1,\n  ?)": "line 2, character 3",
    "": "The text is empty",
    " \n ": "The text is empty",
    "Positive(-3)": "`Positive(x=-3)` needs `x > 0`; received `-3`.",
    "Fragile('index')": "`Fragile` cannot be made of these arguments: 'a'",
    "Fragile('name')": "`Fragile` cannot be made of these arguments: 'str' object",
    "Fragile('zero')": "`Fragile` cannot be made of these arguments: division by zero",
    "[0] * 65537": "at most 65536 elements; received 65537.",
    "[0] * 99999999999999999999": "at most 65536 elements; received 99999999999999999999.",
    "[[0] * 40000, [0] * 40000]": "at most 65536 elements",
    "[Gauss()] * 3": "only numbers may be repeated",
}


@pytest.mark.parametrize(("text", "sentence"), SENTENCES.items())
def test_a_wrong_text_is_a_sentence(text, sentence):
    with pytest.raises(SpecError if "Positive" not in text else InputError) as caught:
        read(text)
    assert sentence in str(caught.value)


CONSTRUCTS = {
    "Gauss.__init__": "attribute access",
    "Gauss().tau": "attribute access",
    "().__class__.__bases__[0]": "indexing",
    "[1][0]": "indexing",
    "(lambda: 1)()": "a call of something other than a name",
    "Gauss()()": "a call of something other than a name",
    "Gauss(lambda: 1)": "a lambda",
    "[x for x in (1, 2)]": "a comprehension",
    "{x for x in (1, 2)}": "a comprehension",
    "{x: x for x in (1, 2)}": "a comprehension",
    "Mix(x for x in (1, 2))": "a generator",
    "f'{1}'": "an f-string",
    "(x := 1)": "an assignment",
    "1 if True else 2": "a condition",
    "1 < 2": "a comparison",
    "True and False": "logic",
    "not True": "arithmetic",
    "~1": "arithmetic",
    "-True": "arithmetic",
    "-'a'": "arithmetic",
    "1 + 1": "arithmetic",
    "2 ** 99999999": "arithmetic",
    "9 * 9": "arithmetic",
    "'a' * 999999999": "arithmetic",
    "'a' + 'b'": "arithmetic",
    "[1] + (1,)": "arithmetic",
    "3 * [1]": "arithmetic",
    "[1] * -1": "arithmetic",
    "[1] * 1.5": "arithmetic",
    "[1] * True": "arithmetic",
    "{}": "a dictionary",
    "{1}": "a set",
    "Mix(*[1, 2])": "unpacking",
    "Gauss(**{'tau': 1})": "unpacking",
    "await x": "an await",
    "1j": "a literal of another kind",
    "b'x'": "a literal of another kind",
    "...": "a literal of another kind",
}


@pytest.mark.parametrize(("text", "construct"), CONSTRUCTS.items())
def test_everything_else_of_python_is_refused_by_name(text, construct):
    with pytest.raises(SpecError, match=construct):
        read(text)


HOSTILE = [
    "__import__('os').system('true')",
    "__import__('os')",
    "eval('1')",
    "exec('1')",
    "open('/etc/passwd')",
    "getattr(Gauss, 'x')",
    "__builtins__",
    "Gauss(tau=__import__)",
    "import os",
    "1; 2",
    "Gauss()\nGauss()",
    "yield",
    "x = 1",
    "\0",
    "Gauss(\0)",
    "\ud800",
    "'",
    '"""',
    "\\",
    "#",
    "`" * 50,
    "(" * 100_000,
    "[" * 99_999,
    "{" * 1000,
    "-" * 99_999 + "1",
    "~" * 50_000 + "1",
    "not " * 20_000 + "1",
    "1+" * 40_000 + "1",
    "[0]+" * 20_000 + "[0]",
    "a." * 40_000 + "b",
    "lambda:" * 14_000 + "1",
    "1<" * 40_000 + "1",
    "1 if 1 else " * 8000 + "1",
    "Gauss(" * 60 + ")" * 60,
    "Gauss(" * 10_000,
    "Gauss()" + "()" * 10_000,
    "f'" + "{" * 300,
    "9" * 5000,
    "0x" + "f" * 50_000,
    "-0x" + "f" * 50_000,
    "[" + "[0]*65536," * 9000 + "]",
    "[[0]*65536]*65536",
    "[0]*65536+" * 9000 + "[0]",
    "[0]*0x" + "f" * 200,
    "a" * 90_000,
    "Gauss(" + "a" * 90_000 + "=1)",
    "1" * 100_001,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_hostile_text_is_one_printable_sentence(text):
    with pytest.raises(SpecError) as caught:
        read(text)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 400


@given(st.text(alphabet="Gaus()[]{}tau=,.*+-0123456789'\"\\ \n_:#@", max_size=40))
def test_no_text_escapes_as_another_error(text):
    sentence = ""
    try:
        read(text)
    except InputError as error:
        sentence = str(error)
    assert sentence.isprintable()


def test_text_must_be_text():
    with pytest.raises(SpecError, match="needs a string; received `int`"):
        read(3)


def test_nothing_is_evaluated_and_torch_is_not_needed():
    source = Path(chiaroscuro.spec.__file__).read_text()
    named = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert not named & {"eval", "exec", "compile", "__import__"}
    code = "import chiaroscuro.spec, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("text", ["[] * " + "9" * 300, "() * " + "9" * 300])
def test_nothing_repeated_often_is_nothing(text):
    assert len(parse(text, {})) == 0
