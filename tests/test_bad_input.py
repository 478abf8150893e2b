"""Every refusal is an InputError whose sentence holds the numbers."""

import math
import re

import pytest
import torch

import chiaroscuro as cs

nan, inf = math.nan, math.inf
z = lambda n=6, d=4, dtype=torch.float32: torch.ones(n, d).to(dtype)


def refused(call, *said):
    with pytest.raises(cs.InputError) as caught:
        call()
    sentence = str(caught.value)
    for words in said:
        assert words in sentence, f"{words!r} is not in {sentence!r}"
    assert re.match(r"^[`A-Z].*\.$", sentence, re.DOTALL), sentence


# ---- embeddings ----


OBJECTIVES = [
    cs.InfoNCE(), cs.SupCon(), cs.Generalised(), cs.VICReg(), cs.BYOL(), cs.BarlowTwins(),
    cs.SpectralContrastive(), cs.AlignUniform(), cs.OnDims(cs.InfoNCE(), 0, 2),
    cs.Weighted((1.0, cs.InfoNCE())),
]  # fmt: skip
EMBEDDINGS = {
    "different n": ((z(6), z(5)), ("(6, 4)", "(5, 4)")),
    "different d": ((z(6, 4), z(6, 3)), ("(6, 4)", "(6, 3)")),
    "a vector": ((torch.ones(6), torch.ones(6)), ("(6,)", "z1")),
    "an image": ((torch.ones(6, 3, 8, 8), torch.ones(6, 3, 8, 8)), ("(6, 3, 8, 8)", "z1")),
    "no dimension": ((z(6, 0), z(6, 0)), ("(6, 0)", "z1")),
    "an empty batch": ((z(0), z(0)), ("received 0",)),
    "integers": ((z(dtype=torch.int64), z()), ("torch.int64", "z1")),
    "booleans": ((z(), z(dtype=torch.bool)), ("torch.bool", "z2")),
    "complex": ((z(dtype=torch.complex64), z()), ("torch.complex64", "z1")),
    "lists": (([[1.0, 2.0]], [[1.0, 2.0]]), ("list", "z1")),
    "nothing": ((None, z()), ("z1",)),
    "NaN": ((z(), z().index_fill(0, torch.tensor([4]), nan)), ("1 of 6", "z2", "row 4")),
    "infinity": ((z().index_fill(0, torch.tensor([2, 5]), inf), z()), ("2 of 6", "z1", "row 2")),
}


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize(("views", "said"), EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_embeddings(objective, views, said):
    more = (torch.zeros(6, dtype=torch.long),) if isinstance(objective, cs.SupCon) else ()
    refused(lambda: objective(*views, *more), *said, type(objective).__name__)


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if type(o) is not cs.SupCon])
def test_the_second_view_is_needed(objective):
    refused(lambda: objective(z(), None), "z2")


@pytest.mark.parametrize("objective", [o for o in OBJECTIVES if o.least == 2], ids=repr)
def test_one_pair_is_too_few_for_statistics(objective):
    refused(lambda: objective(z(1), z(1)), "at least 2 pairs", "received 1")


def test_one_pair_without_candidates():
    refused(lambda: cs.InfoNCE(negatives=cs.AllButPair())(z(1), z(1)), "1 pair", "AllButPair")


def test_devices_must_agree():
    meta = torch.ones(6, 4, device="meta")
    refused(lambda: cs.InfoNCE()(z(), meta), "cpu", "meta")


# ---- queue, labels, window ----


QUEUES = {
    "wrong dimension": (z(5, 3), ("4", "3")),
    "integers": (z(5, dtype=torch.int64), ("torch.int64", "queue")),
    "a vector": (torch.ones(4), ("(4,)", "queue")),
    "a list": ([1.0], ("list", "queue")),
    "NaN": (z(5).index_fill(0, torch.tensor([3]), nan), ("1 of 5", "queue", "row 3")),
}


@pytest.mark.parametrize(("queue", "said"), QUEUES.values(), ids=QUEUES)
def test_queue(queue, said):
    refused(lambda: cs.InfoNCE()(z(), z(), queue=queue), *said)


LABELS = {
    "too few": (torch.zeros(5, dtype=torch.long), ("6", "(5,)")),
    "a matrix": (torch.zeros(6, 1, dtype=torch.long), ("6", "(6, 1)")),
    "floats": (torch.zeros(6), ("torch.float32",)),
    "a list": ([0] * 6, ("list",)),
    "none": (None, ("labels", "none")),
}


@pytest.mark.parametrize(("labels", "said"), LABELS.values(), ids=LABELS)
def test_labels(labels, said):
    refused(lambda: cs.SupCon()(z(), z(), labels), *said)


@pytest.mark.parametrize(
    "labels", [torch.zeros(6, dtype=torch.long), [0] * 6], ids=["tensor", "list"]
)
def test_what_would_be_ignored_is_refused(labels):
    refused(lambda: cs.InfoNCE()(z(), z(), labels), "labels", "ignore")
    refused(lambda: cs.VICReg()(z(), z(), queue=z(5)), "queue", "(5, 4)", "ignore")


@pytest.mark.parametrize("window", [(3, 1), (-1, 2), (0, 7), 5, (0, 1, 2), (0.5, 2)], ids=str)
def test_window(window):
    refused(lambda: cs.InfoNCE()(z(), z(), window=window), "window")


# ---- temperatures ----


KERNELS = {
    "Cosine": cs.Cosine, "Dot": cs.Dot, "Gaussian": cs.Gaussian, "Laplace": cs.Laplace,
    "Exponential": lambda tau: cs.Exponential(0.5, tau), "Lp": lambda tau: cs.Lp(1, tau),
    "Learnable": cs.Learnable,
}  # fmt: skip
TEMPERATURES = {
    "negative": (-0.1, "-0.1"),
    "zero": (0.0, "0.0"),
    "NaN": (nan, "nan"),
    "infinite": (inf, "inf"),
    "text": ("0.1", "'0.1'"),
    "nothing": (None, "None"),
    "a truth": (True, "bool"),
    "no numbers": ([], "[]"),
    "one negative": ([0.1, -0.2], "-0.2"),
    "one NaN": (torch.tensor([0.1, nan]), "nan"),
    "a matrix": ([[0.1, 0.2]], "list"),
}


@pytest.mark.parametrize(("tau", "said"), TEMPERATURES.values(), ids=TEMPERATURES)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_temperature(kernel, tau, said):
    refused(lambda: kernel(tau), said)


def test_the_sentence_of_a_negative_temperature_tells_the_likely_fix():
    refused(lambda: cs.Gaussian(tau=-0.1), "Gaussian(tau=-0.1)", "`tau > 0`", "tau=1/s")


@pytest.mark.parametrize("tau", [[0.1, 0.2, 0.3], cs.Learnable([0.1, 0.2, 0.3])], ids=repr)
@pytest.mark.parametrize("kernel", list(KERNELS.values())[:-1], ids=list(KERNELS)[:-1])
def test_as_many_temperatures_as_dimensions(kernel, tau):
    refused(lambda: cs.InfoNCE(kernel(tau))(z(), z()), "3 temperatures", "4 dimensions")
    refused(lambda: kernel(tau).log(z(), z()), "3 temperatures", "4 dimensions")


LEARNABLE = {
    "floor at the start": ({"init": 0.1, "least": 0.1}, ("0.1",)),
    "floor above one": ({"init": [0.1, 0.5], "least": 0.2}, ("0.2", "0.1")),
    "negative floor": ({"init": 0.1, "least": -0.5}, ("-0.5",)),
    "NaN floor": ({"init": 0.1, "least": nan}, ("nan",)),
    "text for a floor": ({"init": 0.1, "least": "low"}, ("low",)),
    "wrong length": ({"init": [0.1, 0.5], "log_ratio": [0.0] * 3}, ("3", "2")),
    "NaN progress": ({"init": 0.1, "log_ratio": nan}, ("nan",)),
}


@pytest.mark.parametrize(("arguments", "said"), LEARNABLE.values(), ids=LEARNABLE)
def test_learnable(arguments, said):
    refused(lambda: cs.Learnable(**arguments), *said)


# ---- kernels ----


@pytest.mark.parametrize("power", [0, -1.5, nan, inf, "2", None], ids=repr)
def test_powers(power):
    refused(lambda: cs.Exponential(gamma=power), str(power), "gamma")
    refused(lambda: cs.Lp(p=power), str(power), "p")


def test_an_odd_dimension_has_no_halves():
    k = cs.Concat(cs.Gaussian(0.5), cs.Laplace(0.5))
    refused(lambda: cs.InfoNCE(k)(z(6, 5), z(6, 5)), "even", "5")
    refused(lambda: cs.InfoNCE(cs.Concat(k, k))(z(6, 6), z(6, 6)), "even", "3")
    refused(lambda: k.log(z(6, 7), z(6, 7)), "even", "7")


SUMS = {
    "no kernels": (lambda: cs.Sum(), ("[]",)),
    "not a kernel": (lambda: cs.Sum(cs.Dot(), 3), ("int",)),
    "too few weights": (lambda: cs.Sum(cs.Dot(), cs.Dot(), weights=(1.0,)), ("2", "(1.0,)")),
    "a negative weight": (lambda: cs.Sum(cs.Dot(), cs.Dot(), weights=(1.0, -2.0)), ("-2.0",)),
    "a zero weight": (lambda: cs.Sum(cs.Dot(), cs.Dot(), weights=(1.0, 0.0)), ("0.0",)),
    "a NaN weight": (lambda: cs.Sum(cs.Dot(), weights=(nan,)), ("nan",)),
    "one number": (lambda: cs.Sum(cs.Dot(), weights=0.5), ("0.5",)),
    "text": (lambda: cs.Sum(cs.Dot(), weights=("a",)), ("a",)),
    "half a concatenation": (lambda: cs.Concat(cs.Dot(), None), ("NoneType",)),
}


@pytest.mark.parametrize(("call", "said"), SUMS.values(), ids=SUMS)
def test_sums(call, said):
    refused(call, *said)


def test_matrices_of_a_kernel():
    k = cs.Gaussian(0.5)
    refused(lambda: k.log(z(6, 4), z(6, 3)), "4", "3")
    refused(lambda: k.log(torch.ones(4), z()), "(4,)")
    refused(lambda: k.log(z(dtype=torch.int64), z()), "torch.int64")
    refused(lambda: k.log([[1.0]], z()), "list")
    refused(lambda: k.log_paired(z(6), z(5)), "6", "5")


# ---- objectives ----


CHOICES = {
    "anchors": (lambda: cs.InfoNCE(anchors="second"), ("'second'", "both", "first")),
    "anchors of Generalised": (lambda: cs.Generalised(anchors="none"), ("'none'",)),
    "kernel by name": (lambda: cs.InfoNCE("Cosine"), ("str",)),
    "negatives by class": (lambda: cs.InfoNCE(cs.Cosine(), cs.OtherView), ("type",)),
    "kernel of SupCon": (lambda: cs.SupCon(0.1), ("float",)),
    "psi": (lambda: cs.Generalised(psi="lgo1p"), ("'lgo1p'", "log1p", "sqrt")),
    "psi in a list": (lambda: cs.Generalised(psi=["log"]), ("['log']",)),
    "eta": (lambda: cs.Generalised(eta=0.5), ("0.5",)),
    "alpha": (lambda: cs.AlignUniform(alpha=-2.0), ("-2.0",)),
    "alpha NaN": (lambda: cs.AlignUniform(alpha=nan), ("nan",)),
    "alpha infinite": (lambda: cs.AlignUniform(alpha=inf), ("inf",)),
    "t": (lambda: cs.AlignUniform(t=0.0), ("0.0",)),
    "align": (lambda: cs.AlignUniform(align=-1.0), ("-1.0",)),
    "uniform": (lambda: cs.AlignUniform(uniform=nan), ("nan",)),
    "invariance": (lambda: cs.VICReg(invariance=-25.0), ("-25.0",)),
    "variance": (lambda: cs.VICReg(variance=nan), ("nan",)),
    "covariance": (lambda: cs.VICReg(covariance=inf), ("inf",)),
    "eps": (lambda: cs.VICReg(eps=-1.0), ("-1.0",)),
    "redundancy": (lambda: cs.BarlowTwins(redundancy=-0.5), ("-0.5",)),
    "redundancy NaN": (lambda: cs.BarlowTwins(redundancy=nan), ("nan",)),
    "normalise": (lambda: cs.BYOL(normalise="no"), ("'no'",)),
    "no members": (lambda: cs.Weighted(), ("()",)),
    "not a pair": (lambda: cs.Weighted(cs.InfoNCE()), ("InfoNCE",)),
    "not an objective": (lambda: cs.Weighted((1.0, cs.Cosine())), ("Cosine",)),
    "a negative weight": (lambda: cs.Weighted((-0.5, cs.InfoNCE())), ("-0.5",)),
    "a zero weight": (lambda: cs.Weighted((0.0, cs.InfoNCE())), ("0.0",)),
    "a NaN weight": (lambda: cs.Weighted((nan, cs.InfoNCE())), ("nan",)),
    "a weight in words": (lambda: cs.Weighted(("half", cs.InfoNCE())), ("half",)),
    "no weight": (lambda: cs.Weighted((None, cs.InfoNCE())), ("None",)),
    "dimensions of nothing": (lambda: cs.OnDims(cs.Cosine(), 0, 2), ("Cosine",)),
    "an empty slice": (lambda: cs.OnDims(cs.InfoNCE(), 2, 2), ("2 and 2",)),
    "a negative start": (lambda: cs.OnDims(cs.InfoNCE(), -1, 2), ("-1 and 2",)),
    "half a dimension": (lambda: cs.OnDims(cs.InfoNCE(), 0.5, 2), ("0.5 and 2",)),
}


@pytest.mark.parametrize(("call", "said"), CHOICES.values(), ids=CHOICES)
def test_choices(call, said):
    refused(call, *said)


def test_a_slice_beyond_the_dimensions():
    refused(lambda: cs.OnDims(cs.InfoNCE(), 2, 9)(z(), z()), "9", "4")


@pytest.mark.parametrize("objective", [cs.BYOL(), cs.Generalised()], ids=repr)
def test_terms_of_what_does_not_split(objective):
    refused(lambda: objective.terms(z(), z()), type(objective).__name__)


def test_a_sentence_that_quotes_much_leaves_its_middle_out():
    said = str(cs.InputError(f"`{'x' * 10**6}` is long."))
    assert len(said) <= 2000
    assert said.endswith("` is long.")


def test_a_sentence_is_one_line_whatever_it_quotes():
    from chiaroscuro.engine import read_settings

    with pytest.raises(cs.InputError) as caught:
        read_settings("digits", ["views\nMLP\x1b[2J(d_in=1"])
    assert str(caught.value).startswith("`views MLP\\x1b[2J(d_in` is not a setting")
