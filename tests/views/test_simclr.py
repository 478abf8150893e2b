"""The policy: what is drawn, how often, how strongly, and what is refused."""

import dataclasses
import random

import numpy as np
import pytest
import torch

from chiaroscuro import views
from chiaroscuro.errors import InputError
from chiaroscuro.spec import parse
from chiaroscuro.views import PARAMETERS, STRENGTHS, SimCLR
from views import naive

NAMES = {name: getattr(views, name) for name in views.__all__}


def images(n=6, channels=3, side=16, seed=0):
    shape = (n, channels, side, side)
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def drawn(policy, n, sides, seed=0):
    return policy.sample(sides, policy.draws(np.arange(n), seed, 0, 0))


# ---- plain pictures ----


@pytest.mark.parametrize("side", [8, 12, 16])
@pytest.mark.parametrize("antialias", [True, False])
def test_plain_is_a_view_of_strength_zero(side, antialias):
    more = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.3), "antialias": antialias}
    view, _ = SimCLR(12, strength=0.0, **more)(images(side=side), range(6))
    found = SimCLR(12, strength=1.0, blur=1.0, **more).plain(images(side=side))
    torch.testing.assert_close(found, view, atol=2e-5, rtol=0)
    as_floats = SimCLR(12, **more).plain(images(side=side).float() / 255)
    torch.testing.assert_close(as_floats, found)
    listed = SimCLR(12, **more).plain(list(images(side=side)))
    torch.testing.assert_close(listed, found)


def test_plain_without_normalisation_is_the_picture():
    torch.testing.assert_close(SimCLR(16).plain(images()), images().float() / 255)
    with pytest.raises(InputError, match="one number per channel; received images of 1"):
        SimCLR(16, mean=(0.5,) * 3, std=(1.0,) * 3).plain(images(channels=1))


# ---- the path of strengths ----

# cosentino2022, Table 2: flip, grayscale, scale, s
TABLE_2 = {
    "large": (0.5, 0.2, (0.08, 1.0), 0.5),
    "moderate": (0.5, 0.2, (0.5, 1.0), 0.25),
    "small": (0.0, 0.2, (0.9, 1.0), 0.05),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_the_path_passes_through_table_2(name):
    flip, gray, scale, s = TABLE_2[name]
    policy = getattr(SimCLR, name)(32)
    assert policy == SimCLR.at(STRENGTHS[name], 32) == SimCLR(32, strength=s)
    full = policy.explicit()
    assert (full.flip, full.grayscale, full.scale) == (flip, gray, scale)
    assert full.jitter == 0.8
    assert (full.brightness, full.contrast, full.saturation) == (0.8 * s,) * 3
    assert full.hue == 0.2 * s
    assert (full.blur, full.solarise) == (0, 0)


def test_the_path_is_continuous_and_rises():
    grid = np.linspace(0, 1, 2001)
    names = ("scale", "flip", "brightness", "hue", "grayscale")
    policies = [SimCLR.at(float(s)).explicit() for s in grid]
    rows = np.array([[np.ravel(getattr(p, name))[0] for name in names] for p in policies])
    rows[:, 0] *= -1  # a smaller crop is stronger
    steps = np.diff(rows, axis=0)
    assert steps.min() >= -1e-12
    assert steps.max() < 0.0025


def test_strength_zero_is_a_plain_resize():
    x = images(4, side=12)
    got, parameters = SimCLR(size=12, strength=0)(x, range(4))
    assert torch.allclose(got, x / 255, atol=1e-6)
    assert not parameters["flip"].any()
    assert set(parameters["height"]) == {12}


def test_explicit_draws_the_same():
    policy = SimCLR(16, strength=0.3, blur=0.5)
    assert (drawn(policy, 50, (20, 30)) == drawn(policy.explicit(), 50, (20, 30))).all()
    assert policy.explicit().explicit() == policy.explicit()
    assert policy.explicit() != policy


def test_what_is_given_overrides_the_path():
    policy = SimCLR(16, strength=0.3, hue=0.0, flip=1.0)
    assert drawn(policy, 20, (16, 16))["flip"].all()
    assert not drawn(policy, 20, (16, 16))["hue"].any()
    assert policy.explicit().brightness == 0.8 * 0.3


@pytest.mark.parametrize(
    "policy",
    [
        SimCLR(32),
        SimCLR.small(96),
        SimCLR(32, 0.3).explicit(),
        SimCLR(8, scale=[0.2, 0.5], mean=[0.5] * 3, std=[0.1, 0.2, 0.3], antialias=False),
    ],
)
def test_notation_round_trip(policy):
    again = parse(repr(policy), NAMES)
    assert again == policy
    assert hash(again) == hash(policy)
    assert dataclasses.replace(policy, strength=0.7) != policy


def test_the_kernel_is_a_tenth_of_the_view():
    # simclr: kernel_size = height // 10, radius = int(kernel_size / 2), width 2 radius + 1
    for size in (8, 19, 20, 32, 96, 160, 224):
        assert SimCLR(size).explicit().kernel == 2 * int(size // 10 / 2) + 1


# ---- what is drawn ----


def test_views_do_not_depend_on_the_batch():
    policy, x = SimCLR(12, blur=0.5, solarise=0.5), images(7)
    ids = np.array([3, 14, 15, 92, 65, 35, 8])
    whole, parameters = policy(x, ids, seed=5, epoch=2, view=1)
    for part in ([0], [6, 2], [5, 4, 3, 1]):
        got, rows = policy(x[part], ids[part], seed=5, epoch=2, view=1)
        assert torch.equal(got, whole[part])
        assert (rows == parameters[part]).all()
    again, _ = policy(x.numpy(), torch.from_numpy(ids), seed=5, epoch=2, view=1)
    assert torch.equal(again, whole)
    for other in ({"seed": 6}, {"epoch": 3}, {"view": 0}):
        got, rows = policy(x, ids, **{"seed": 5, "epoch": 2, "view": 1, **other})
        assert not torch.equal(got, whole)


def test_parameters_are_all_there():
    _, parameters = SimCLR(12, blur=0.5, solarise=0.5)(images(), range(6))
    assert parameters.dtype == PARAMETERS
    for name in (
        *("top", "left", "height", "width", "flip", "order", "grayscale", "sigma", "solarise"),
        *("brightness", "contrast", "saturation", "hue"),
    ):
        assert len(parameters[name]) == 6


def test_frequencies_and_ranges():
    n = 20_000
    policy = SimCLR(32, strength=1, blur=0.3, solarise=0.1)
    p = drawn(policy, n, (32, 32))

    def near(mean, expected, deviation):
        assert abs(mean - expected) < 5 * deviation / np.sqrt(n)

    for name, rate in (("flip", 0.5), ("jitter", 0.8), ("grayscale", 0.2), ("solarise", 0.1)):
        near(p[name].mean(), rate, np.sqrt(rate * (1 - rate)))
    near((p["sigma"] > 0).mean(), 0.3, np.sqrt(0.21))
    sigma = p["sigma"][p["sigma"] > 0]
    assert 0.1 <= sigma.min() < 0.11
    assert 1.99 < sigma.max() <= 2.0
    on = p[p["jitter"]]
    for name in ("brightness", "contrast", "saturation"):
        assert 0.2 <= on[name].min() < 0.201
        assert 1.799 < on[name].max() <= np.float32(1.8)
        near(on[name].mean(), 1.0, 1.6 / np.sqrt(12) / np.sqrt(0.8))
    assert -0.2 <= on["hue"].min() < -0.1999
    off = p[~p["jitter"]]
    assert set(off["brightness"]) == set(off["contrast"]) == set(off["saturation"]) == {1.0}
    assert set(off["hue"]) == {0.0}
    assert (np.sort(p["order"], axis=1) == np.arange(4)).all()
    _, counts = np.unique(p["order"], axis=0, return_counts=True)
    assert len(counts) == 24
    chi_squared = ((counts - n / 24) ** 2 / (n / 24)).sum()
    assert chi_squared < 23 + 5 * np.sqrt(46)
    marks = np.stack([p["flip"], p["jitter"], p["grayscale"], p["sigma"] > 0, p["solarise"]])
    assert np.abs(np.corrcoef(marks) - np.eye(5)).max() < 5 / np.sqrt(n)


def test_brightness_beyond_one_starts_at_zero():
    p = drawn(SimCLR(8, strength=2, jitter=1.0), 2000, (8, 8))
    assert 0 <= p["brightness"].min() < 0.01
    assert 2.59 < p["brightness"].max() <= np.float32(2.6)


@pytest.mark.parametrize(
    ("sides", "scale"),
    [((32, 32), (0.08, 1.0)), ((32, 32), (0.9, 1.0)), ((20, 70), (0.3, 0.8)), ((70, 20), (0.5, 1))],
)
def test_boxes_follow_torchvisions_law(sides, scale):
    n, ratio, rng = 6000, (3 / 4, 4 / 3), random.Random(1)
    p = drawn(SimCLR(32, scale=scale), n, sides)
    ours = np.stack([p[name] for name in ("top", "left", "height", "width")], axis=1).astype(float)
    theirs = np.array([naive.box(rng, *sides, scale, ratio) for _ in range(n)], dtype=float)
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= sides).all()

    def moments(boxes):
        top, left, h, w = boxes.T
        columns = [top, left, h, w, h * w, w / h, top * h, left * w, h * h]
        columns += [(h == sides[0]) & (w == sides[1]), top == 0, left + w == sides[1]]
        return np.stack(columns, axis=1).astype(float)

    a, b = moments(ours), moments(theirs)
    error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n) + 1e-9
    assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) / error).max() < 5


def test_the_central_box_is_torchvisions():
    # no box of this area fits, so ten tries fail and the centre is taken
    for sides in ((10, 90), (90, 10), (31, 32)):
        p = drawn(SimCLR(8, scale=(1.0, 1.0), ratio=(1.5, 1.6)), 3, sides)
        expected = naive.box(random.Random(0), *sides, (1.0, 1.0), (1.5, 1.6))
        assert [tuple(int(v) for v in row) for row in p[["top", "left", "height", "width"]]] == [
            expected
        ] * 3


# ---- sentences ----


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda: SimCLR(0), "size=0"),
        (lambda: SimCLR(-3), "-3"),
        (lambda: SimCLR(32.0), "32.0"),
        (lambda: SimCLR(32, strength=-0.5), "-0.5"),
        (lambda: SimCLR(32, strength=float("nan")), "nan"),
        (lambda: SimCLR(32, strength=3), "0.6000"),  # the hue it would need
        (lambda: SimCLR(32, flip=1.5), "1.5"),
        (lambda: SimCLR(32, scale=(0.5, 0.2)), "0.2"),
        (lambda: SimCLR(32, scale=(0.0, 1.0)), "0.0"),
        (lambda: SimCLR(32, ratio=(1.0,)), "1.0"),
        (lambda: SimCLR(32, kernel=4), "4"),
        (lambda: SimCLR(4, kernel=9), "9"),
        (lambda: SimCLR(32, mean=(0.5,)), "0.5"),
        (lambda: SimCLR(32, mean=(0.5,) * 14, std=(1.0,) * 14), "1 to 13"),
        (lambda: SimCLR(32, mean=(0.5,), std=(0.0,)), "0.0"),
        (lambda: SimCLR(8)(torch.zeros(2, 3, 8, 8, dtype=torch.int64), [0, 1]), "int64"),
        (lambda: SimCLR(8)(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), [0, 1]), "permute"),
        (lambda: SimCLR(8)(torch.zeros(3, 8, 8, dtype=torch.uint8), [0]), r"\(3, 8, 8\)"),
        (lambda: SimCLR(8)(torch.zeros(2, 3, 0, 8, dtype=torch.uint8), [0, 1]), "0"),
        (lambda: SimCLR(8)(torch.full((1, 3, 8, 8), -2.0), [0]), "-2"),
        (lambda: SimCLR(8)(torch.full((1, 3, 8, 8), float("nan")), [0]), "nan"),
        (lambda: SimCLR(8)(images(3), [0, 1]), "3 samples and 2"),
        (lambda: SimCLR(8)("picture", [0]), "str"),
        (lambda: SimCLR(8)([], []), "0"),
        (lambda: SimCLR(8)([images(1)[0], images(1, 1)[0]], [0, 1]), "2 kinds"),
        (lambda: SimCLR(8, mean=(0.5,), std=(1.0,))(images(1), [0]), "3"),
        (lambda: SimCLR(8).sample((8, 8, 8), SimCLR(8).draws([0], 0, 0, 0)), r"\(3,\)"),
    ],
)
def test_sentences(call, number):
    with pytest.raises(InputError, match=number):
        call()


def test_an_empty_batch():
    x, parameters = SimCLR(8)(torch.zeros(0, 3, 9, 9, dtype=torch.uint8), [])
    assert x.shape == (0, 3, 8, 8)
    assert len(parameters) == 0
