"""Wandering digits: pure in (seed, epoch, row, view), true to their factors, hard for pixels."""

import pickle

import numpy as np
import pytest

from chiaroscuro.data import WanderingDigits
from chiaroscuro.data import digits as module
from chiaroscuro.data.digits import FACTORS
from chiaroscuro.errors import InputError

STILL = {
    "scale": (0.8, 0.8),
    "shift": 0,
    "angle": 0,
    "hue": 0,
    "contrast": (0.6, 0.6),
    "lightness": 0,
    "light_on_dark": 0,
    "clutter": 0,
}


@pytest.fixture(scope="module")
def data():
    return WanderingDigits().dataset()


def test_no_handwriting_is_on_both_sides(data):
    sides = [set(data.part(side).groups.tolist()) for side in ("train", "test")]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 1797
    for side, n in (("train", 2), ("test", 4)):
        assert set(np.bincount(data.part(side).groups).tolist()) == {0, n}


def test_the_digits_are_those_of_scikit_learn(data, monkeypatch):
    from sklearn.datasets import load_digits

    images, labels = module._digits()
    assert (images == load_digits().images).all()
    assert (labels == load_digits().target).all()
    assert (data.labels == labels[data.groups]).all()
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert (module._digits()[0] == images).all()


def test_a_picture_does_not_depend_on_its_batch(data):
    rows = np.random.default_rng(0).permutation(len(data))[:300]
    together = data.draw(rows, seed=3, epoch=2, view=1)
    for place in (0, 7, 255, 256, 299):
        alone = data.draw(rows[[place]], seed=3, epoch=2, view=1)
        assert (alone["images"][0] == together["images"][place]).all()
        assert (alone["factors"][0] == together["factors"][place]).all()


def test_a_picture_does_not_depend_on_the_subset(data):
    part = data.part("test").take([5, 9])
    whole = data.draw(part.ids, seed=1, epoch=0, view=0)
    assert (part.draw([0, 1], seed=1, epoch=0, view=0)["images"] == whole["images"]).all()
    assert (whole["row"] == part.ids).all()


def test_every_part_of_the_key_matters(data):
    base = {"seed": 0, "epoch": 0, "view": 0}
    first = data.draw([4], **base)["images"]
    assert (first == data.draw([4], **base)["images"]).all()
    for key in base:
        assert (first != data.draw([4], **{**base, key: 1})["images"]).any()
    assert (first != data[[4]]["images"]).any()


def test_the_same_everywhere_and_always(data):
    # the numbers of another day: a change here is a change of the dataset
    assert abs(data.column("images").mean() - 126.267) < 0.01
    assert data.groups[:4].tolist() == [1, 1, 3, 3]
    first = [-0.0172, 0.1349, -0.1576, 0.7018, 0.9339, 0.5051, 0.4743, 0.5082, 1.0, 0.0168]
    assert abs(data.factors[0] - first).max() < 1e-4
    again = pickle.loads(pickle.dumps(WanderingDigits())).dataset()
    assert (again.column("images") == data.column("images")).all()


def test_with_all_nuisances_off_drawings_are_equal():
    data = WanderingDigits(**STILL).dataset()
    views = [data.draw(np.arange(50), seed=s, epoch=s, view=s)["images"] for s in (0, 1)]
    assert (views[0] == views[1]).all()


SWITCHES = {
    "x": {"shift": 0.5},
    "y": {"shift": 0.5},
    "angle": {"angle": 1.0},
    "scale": {"scale": (0.5, 0.9)},
    "ink_hue": {"hue": 1.0},
    "paper_hue": {"hue": 1.0},
    "contrast": {"contrast": (0.3, 0.8)},
    "lightness": {"lightness": 1.0},
    "light_on_dark": {"light_on_dark": 0.5},
    "clutter": {"clutter": 0.5},
}


@pytest.mark.parametrize("factor", FACTORS)
def test_each_nuisance_can_be_switched_on_alone(factor):
    wander = WanderingDigits(**{**STILL, **SWITCHES[factor]})
    drawn = wander.draw(np.arange(200), seed=0, epoch=0, view=0)
    moving = {name for name, f in zip(FACTORS, drawn["factors"].T, strict=True) if np.ptp(f) > 1e-9}
    together = {"x": {"x", "y"}, "y": {"x", "y"}, "ink_hue": {"ink_hue", "paper_hue"}}
    together["paper_hue"] = together["ink_hue"]
    together["contrast"] = {"contrast", "lightness"}  # the darker one gives way
    assert moving == together.get(factor, {factor})


def test_factors_say_where_the_ink_is():
    wander = WanderingDigits(**{**STILL, "shift": 0.4, "scale": (0.45, 0.45)})
    drawn = wander.draw(np.arange(400), seed=0, epoch=0, view=0)
    still = WanderingDigits(**{**STILL, "scale": (0.45, 0.45)}).draw(
        np.arange(400), seed=0, epoch=0, view=0
    )

    def centre(images):
        ink = np.abs(images.astype(float) - images[:, :1, :1]).sum(-1)
        p = (2 * np.arange(32) + 1) / 32 - 1
        total = ink.sum((1, 2))
        return np.stack([(ink.sum(1) * p).sum(1), (ink.sum(2) * p).sum(1)], 1) / total[:, None]

    moved = centre(drawn["images"]) - centre(still["images"])
    assert abs(moved - drawn["factors"][:, :2]).max() < 0.05


def test_factors_say_how_large_and_how_turned():
    def axes(**settings):
        drawn = WanderingDigits(**{**STILL, **settings}).draw(
            np.arange(300), seed=0, epoch=0, view=0
        )
        ink = np.abs(drawn["images"].astype(float) - drawn["images"][:, :1, :1]).sum(-1)
        return drawn["factors"], ink

    factors, ink = axes(scale=(0.4, 0.8))
    _, reference = axes(scale=(0.8, 0.8))
    area = np.sqrt(ink.sum((1, 2)) / reference.sum((1, 2)))
    assert abs(area - factors[:, FACTORS.index("scale")] / 0.8).max() < 0.04
    turned, ink = axes(angle=0.3)
    p = (2 * np.arange(32) + 1) / 32 - 1

    def skew(ink):
        w = ink / ink.sum((1, 2), keepdims=True)
        x, y = (w * p).sum((1, 2)), (w * p[:, None]).sum((1, 2))
        dx, dy = p - x[:, None], p - y[:, None]
        xy = np.einsum("nij,ni,nj->n", w, dy, dx)
        spread = np.einsum("nij,nj->n", w, dx**2) - np.einsum("nij,ni->n", w, dy**2)
        return np.arctan2(2 * xy, spread) / 2

    change = (skew(ink) - skew(reference) + np.pi / 2) % np.pi - np.pi / 2
    long = np.abs(turned[:, 2]) > 0.05
    assert np.corrcoef(change[long], turned[long, 2])[0, 1] > 0.9


def test_contrast_keeps_digits_readable(data):
    images = data.column("images").astype(float) @ np.array(module.LUMA)
    spread = np.percentile(images, 97, axis=(1, 2)) - np.percentile(images, 3, axis=(1, 2))
    assert np.percentile(spread, 1) > 40


def neighbours(data, count: int = 20) -> float:
    """kNN on mean-centred cosine, majority of `count`, train to test."""
    train, test = data.part("train"), data.part("test")
    a, b = (
        side.column("images").reshape(len(side), -1).astype(np.float32) for side in (train, test)
    )
    mean = a.mean(0)
    a, b = ((x - mean) / np.linalg.norm(x - mean, axis=1, keepdims=True) for x in (a, b))
    nearest = np.argpartition(-(b @ a.T), count, axis=1)[:, :count]
    votes = np.stack([(train.labels[nearest] == digit).sum(1) for digit in range(10)], 1)
    return float((votes.argmax(1) == test.labels).mean())


def test_raw_pixels_fail(data):
    assert 0.12 < neighbours(data) < 0.29


def test_without_nuisances_raw_pixels_suffice():
    assert neighbours(WanderingDigits(**{**STILL, "renderings": (1, 1)}).dataset()) > 0.93


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"scale": (0.9, 0.5)}, r"scale=\(low, high\).*received `\(0\.9, 0\.5\)`"),
        ({"contrast": (0.2, 1.2)}, r"high <= 1\.0; received `\(0\.2, 1\.2\)`"),
        ({"shift": -1}, r"from 0 to 2\.0; received `-1`"),
        ({"clutter": 3}, "received `3`"),
        ({"size": 4}, "8 to 512 pixels; received `4`"),
        ({"renderings": (0, 1)}, r"received `\(0, 1\)`"),
        ({"test": 1.0}, r"received `1\.0`"),
    ],
)
def test_settings_that_make_no_sense(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        WanderingDigits(**settings).dataset()


@pytest.mark.parametrize("size", [16, 64])
def test_other_sizes(size):
    drawn = WanderingDigits(size=size).draw(np.arange(3), seed=0, epoch=0, view=0)
    assert drawn["images"].shape == (3, size, size, 3)
