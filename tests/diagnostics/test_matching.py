"""Retrieval against a naive loop, an enumeration of tie-breaks and closed forms; zero-shot."""

import itertools
import math

import numpy as np
import pytest
import torch

from chiaroscuro.diagnostics import retrieval, zero_shot_accuracy
from chiaroscuro.diagnostics.semantics import matching
from chiaroscuro.diagnostics.semantics.matching import Places, first_places
from chiaroscuro.errors import InputError

PLACES = (1, 5, 10)


def naive(queries, candidates, relevant):
    """Rank of the nearest relevant candidate of each query, by sorting; no ties."""
    ranks = []
    for i, q in enumerate(queries):
        s = [q @ c / np.linalg.norm(q) / np.linalg.norm(c) for c in candidates]
        order = sorted(range(len(s)), key=lambda j: -s[j])
        ranks.append(1 + next(place for place, j in enumerate(order) if relevant(i, j)))
    return np.array(ranks)


def pairs(n=90, d=6, noise=0.7, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, d))
    return a, a + noise * rng.normal(size=(n, d))


def check(found, ranks):
    for k in PLACES:
        assert found[f"recall_{k}"] == pytest.approx((ranks <= k).mean())
    assert found["median_rank"] == pytest.approx(np.median(ranks))


@pytest.mark.parametrize("tile", [7, 1000])
def test_one_text_each_is_the_naive_loop(tile, monkeypatch):
    monkeypatch.setattr(matching, "QUERIES", tile)
    monkeypatch.setattr(matching, "CANDIDATES", 2 * tile)
    images, texts = pairs()
    found = retrieval(images, texts)
    same = lambda i, j: i == j
    check(found["image_to_text"], naive(images, texts, same))
    check(found["text_to_image"], naive(texts, images, same))
    assert 0.1 < found["image_to_text"]["recall_1"] < 0.9


def test_several_texts_each_are_the_naive_loop():
    images, near = pairs(40)
    rng = np.random.default_rng(1)
    owner = rng.permutation(np.r_[np.arange(40), rng.integers(0, 40, 60)])
    texts = near[owner] + rng.normal(size=(100, 6))
    found = retrieval(images, texts, owner)
    check(found["image_to_text"], naive(images, texts, lambda i, j: owner[j] == i))
    check(found["text_to_image"], naive(texts, images, lambda i, j: owner[i] == j))
    assert found["n_texts"] == 100


@pytest.mark.parametrize(("level", "relevant"), [(0, 1), (4, 1), (3, 2), (2, 3), (5, 2)])
@pytest.mark.parametrize("before", [0, 1, 4])
def test_ties_are_the_mean_over_every_order(before, level, relevant):
    places = [
        before + 1 + min(chosen)
        for chosen in itertools.combinations(range(level + relevant), relevant)
    ]
    found = Places(*(torch.tensor([x]) for x in (before, level, relevant)))
    assert float(found.rank()) == pytest.approx(np.mean(places))
    for k in range(1, 12):
        assert float(found.recall(k)) == pytest.approx(np.mean([p <= k for p in places]))


def test_twins_share_their_places():
    """Two pictures that are one, and a third: the order of rows gives nobody the first place."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for texts in (z, z + 1e-8):
        found = retrieval(z, texts)["image_to_text"]
        assert found["recall_1"] == pytest.approx((0.5 + 0.5 + 1) / 3)
        assert found["median_rank"] == pytest.approx(1.5)


@pytest.mark.parametrize("n", [1, 9, 50])
def test_a_collapsed_embedding_is_chance(n):
    found = retrieval(torch.full((n, 4), 0.3), torch.full((n, 4), 0.1))["text_to_image"]
    for k in PLACES:
        assert found[f"recall_{k}"] == pytest.approx(min(1, k / n))
        assert found["chance"][f"recall_{k}"] == pytest.approx(min(1, k / n))
    assert found["median_rank"] == pytest.approx((n + 1) / 2)
    assert found["chance"]["median_rank"] == math.ceil(n / 2)


def test_chance_with_several_texts_is_the_hypergeometric_law():
    owner = np.array([0, 0, 0, 1, 2, 2])
    found = retrieval(torch.ones(3, 2), torch.ones(6, 2), owner)["image_to_text"]
    miss = [math.comb(6 - r, 5) / math.comb(6, 5) for r in (3, 1, 2)]
    assert found["chance"]["recall_5"] == pytest.approx(1 - np.mean(miss))
    assert found["recall_5"] == pytest.approx(found["chance"]["recall_5"])
    by_two = 1 - np.mean([math.comb(6 - r, 2) / math.comb(6, 2) for r in (3, 1, 2)])
    by_one = np.mean([3 / 6, 1 / 6, 2 / 6])
    assert by_one < 0.5 < by_two
    assert found["chance"]["median_rank"] == 2


def test_random_embeddings_are_near_chance():
    rng = np.random.default_rng(0)
    found = retrieval(rng.normal(size=(400, 8)), rng.normal(size=(400, 8)))
    for way in ("image_to_text", "text_to_image"):
        assert abs(found[way]["recall_10"] - 0.025) < 4 * math.sqrt(0.025 * 0.975 / 400)
        assert 160 < found[way]["median_rank"] < 240


def test_rotation_scale_and_order_change_nothing():
    images, texts = pairs()
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 6)))[0]
    order = np.random.default_rng(4).permutation(90)
    factors = np.random.default_rng(5).uniform(0.1, 9, (90, 1))
    found = retrieval(images, texts)
    assert retrieval((images @ rotation * factors)[order], (texts @ rotation)[order]) == found
    swapped = retrieval(texts, images)
    assert swapped["text_to_image"] == found["image_to_text"]


def test_a_zero_row_is_level_with_everything():
    u = torch.nn.functional.normalize(torch.randn(5, 3, dtype=torch.float64))
    zero = torch.zeros(1, 3, dtype=torch.float64)
    found = first_places(zero, u, torch.tensor([2]), torch.arange(5))
    assert [int(x) for x in found] == [0, 4, 1]


def test_what_does_not_fit_is_named():
    with pytest.raises(InputError, match="received 3 images and 4 texts"):
        retrieval(torch.eye(3), torch.ones(4, 3))
    with pytest.raises(InputError, match="received 3 and 4"):
        retrieval(torch.eye(3), torch.eye(4))
    with pytest.raises(InputError, match=r"owners up to 1, and 1 images without"):
        retrieval(torch.eye(3), torch.eye(3), [0, 1, 1])
    with pytest.raises(InputError, match=r"0 to 2.* owners up to 7"):
        retrieval(torch.eye(3), torch.ones(4, 3), [0, 1, 2, 7])


# ---- zero-shot ----


def test_zero_shot_is_the_naive_loop():
    rng = np.random.default_rng(0)
    z, prompts, y = rng.normal(size=(200, 5)), rng.normal(size=(4, 5)), rng.integers(0, 4, 200)
    y[y == 3] = 0
    named = [max(range(4), key=lambda c: q @ prompts[c] / np.linalg.norm(prompts[c])) for q in z]
    hits = np.array(named) == y
    found = zero_shot_accuracy(z, prompts, y)
    assert found["zero_shot"] == pytest.approx(hits.mean())
    assert found["zero_shot_balanced"] == pytest.approx(
        np.mean([hits[y == c].mean() for c in (0, 1, 2)])
    )


def test_zero_shot_at_its_extremes():
    y = torch.arange(6) % 3
    assert zero_shot_accuracy(torch.eye(3)[y], 5 * torch.eye(3), y)["zero_shot"] == 1.0
    found = zero_shot_accuracy(torch.ones(6, 2), torch.ones(3, 2), y)
    assert found["zero_shot"] == pytest.approx(1 / 3)
    with pytest.raises(InputError, match="labels up to 2 and 2 prompts"):
        zero_shot_accuracy(torch.eye(3), torch.eye(3)[:2], y[:3])
