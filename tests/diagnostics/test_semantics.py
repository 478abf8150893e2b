"""Equivalence and alignment on tasks whose truth is known, and the error rates of their tests."""

import math

import numpy as np
import pytest

from chiaroscuro.diagnostics import (
    context_distances,
    distributional_alignment,
    equivalence,
    semantic_ratio,
    tabulate,
)
from chiaroscuro.errors import InputError

rng = np.random.default_rng
N_SYMBOLS, K = 16, 8


def modular():
    """ModAdd as a table: symbol a, context b, label (a + b) mod 8, each once."""
    a, b = np.divmod(np.arange(N_SYMBOLS**2), N_SYMBOLS)
    return a, b, (a + b) % K


def contrastive(n, shift=0.0, seed=0):
    """CModAdd: symbol a with context (b, (a + b) mod 8); some contexts are drawn at random."""
    r = rng(seed)
    a, b = r.integers(0, N_SYMBOLS, (2, n))
    c = np.where(r.uniform(size=n) < shift, r.integers(0, K, n), (a + b) % K)
    return tabulate(a, np.c_[b, c])


def naive_distance(table, u, v):
    top = bottom = 0.0
    for c in range(table.shape[1]):
        n, m = table[u, c].sum(), table[v, c].sum()
        if n and m:
            w = n * m / (n + m)
            top += w * np.abs(table[u, c] / n - table[v, c] / m).sum() / 2
            bottom += w
    return top / bottom if bottom else math.nan


# ---- equivalence ----


def test_tables_count():
    table = tabulate([0, 2, 2, 2], [5, 5, 9, 5], [1, 0, 0, 0])
    assert table.shape == (3, 2, 2)
    assert table[2, 0, 0] == 2
    assert table.sum() == 4
    assert table[1].sum() == 0
    with pytest.raises(InputError, match=r"int64 of \(2,\) and contexts of \(3,\)"):
        tabulate([0, 1], [1, 2, 3])
    with pytest.raises(InputError, match="a label from 0 for each of 2"):
        tabulate([0, 1], [1, 2], [0.5, 1.0])


def test_modular_addition_has_eight_meanings():
    a, b, y = modular()
    found = equivalence(tabulate(a, b, y), exact=True)
    assert found.classes.tolist() == [s % K for s in range(N_SYMBOLS)]
    assert found.n_classes == K
    assert found.distance[0, 8] == 0
    assert found.distance[0, 1] == 1
    assert (found.shared == N_SYMBOLS).all()


def test_distance_is_the_naive_loop_and_squared_is_without_bias():
    table = rng(0).integers(0, 4, (4, 5, 3))
    found = equivalence(table)
    for u in range(4):
        for v in range(4):
            assert found.distance[u, v] == pytest.approx(naive_distance(table, u, v))
    law = rng(1).dirichlet(np.ones(3), size=(2, 4))
    truth = ((law[0] - law[1]) ** 2).sum(1).mean()
    plug, fair = [], []
    for s in range(300):
        sample = np.stack(
            [
                [rng([s, i, c]).multinomial(6, p) for c, p in enumerate(side)]
                for i, side in enumerate(law)
            ]
        )
        found = equivalence(sample)
        fair.append(found.squared[0, 1])
        plug.append((((sample / 6)[0] - (sample / 6)[1]) ** 2).sum(1).mean())
    error = np.std(fair) / math.sqrt(300)
    assert abs(np.mean(fair) - truth) < 4 * error
    assert np.mean(plug) - truth > 4 * error


def test_the_test_errs_as_often_as_it_says():
    """Of equal laws about one in twenty is told apart; of different ones nearly all."""
    law = rng(0).dirichlet(np.ones(3), size=5)
    other = np.roll(law, 1, axis=1)
    wrong = right = 0
    for s in range(300):
        draw = lambda p, i, s=s: [rng([s, i, c]).multinomial(20, q) for c, q in enumerate(p)]
        found = equivalence(np.array([draw(law, 0), draw(law, 1), draw(other, 2)]))
        wrong += not found.same[0, 1]
        right += not found.same[0, 2]
    assert 3 <= wrong <= 30
    assert right > 290


def test_pearson_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    table = rng(0).integers(1, 9, (2, 1, 4))
    chi, _, dof, _ = stats.chi2_contingency(table[:, 0])
    n = table.sum()
    expected = stats.chi2.sf(chi * (n - 1) / n, dof)
    assert equivalence(table).p_value[0, 1] == pytest.approx(expected)


def test_what_was_never_seen_together_is_unknown():
    table = np.zeros((3, 2, 2), dtype=int)
    table[0, 0, 0] = table[1, 1, 0] = 9
    table[2, 0, 0] = 9
    found = equivalence(table)
    assert math.isnan(found.distance[0, 1])
    assert math.isnan(found.p_value[0, 1])
    assert not found.same[0, 1]
    assert found.same[0, 2]
    assert found.shared[0, 1] == 0
    assert found.json()["distance"][0][1] is None
    with pytest.raises(InputError, match=r"received shape \(2, 2\)"):
        equivalence(np.ones((2, 2)))
    with pytest.raises(InputError, match="whole counts"):
        equivalence(np.full((2, 2, 2), 0.5))


# ---- the embedding of symbols ----


def test_semantic_ratio_is_the_naive_loop():
    h, y = rng(0).normal(size=(9, 4)), np.arange(9) % 3
    t = lambda u, v: np.linalg.norm(h[u] - h[v])
    pairs = [(u, v) for u in range(9) for v in range(9) if u != v]
    same = np.mean([t(u, v) for u, v in pairs if y[u] == y[v]])
    rest = np.mean([t(u, v) for u, v in pairs if y[u] != y[v]])
    found = semantic_ratio(h, y)
    assert found.ratio == pytest.approx(same / rest)
    nearest = [min((v for v in range(9) if v != u), key=lambda v, u=u: t(u, v)) for u in range(9)]
    assert found.nearest == pytest.approx(np.mean(y[nearest] == y))
    assert found.by_chance == pytest.approx(2 / 8)
    assert semantic_ratio(1e-6 * h, y).ratio == pytest.approx(found.ratio)


def test_semantic_ratio_at_its_extremes():
    y = np.arange(16) % 8
    merged = semantic_ratio(np.eye(8)[y], y)
    assert (merged.ratio, merged.nearest) == (0, 1)
    collapsed = semantic_ratio(np.ones((16, 3)), y)
    assert collapsed.ratio == 1
    assert collapsed.nearest == pytest.approx(collapsed.by_chance)
    with pytest.raises(InputError, match="received 16 classes of 16 symbols"):
        semantic_ratio(np.eye(16), np.arange(16))


# ---- alignment ----


def test_context_distances_are_their_formulas():
    counts = rng(0).integers(0, 5, (4, 6)) + 1
    p = counts / counts.sum(1, keepdims=True)
    n = counts.sum(1)
    own = [(c * (c - 1)).sum() / (m * (m - 1)) for c, m in zip(counts, n, strict=True)]
    for u in range(4):
        for v in range(4):
            if u == v:
                continue
            one, two = p[u], p[v]
            expected = {
                "variation": np.abs(one - two).sum() / 2,
                "hellinger": math.sqrt(1 - np.sqrt(one * two).sum()),
                "cosine": 1 - (one @ two) / math.sqrt(own[u] * own[v]),
            }
            for name, value in expected.items():
                assert context_distances(counts, name)[u, v] == pytest.approx(value)
    apart = [[3, 3, 0, 0], [0, 0, 4, 2]]
    for name in ("variation", "hellinger", "cosine"):
        assert context_distances(apart, name)[0, 1] == pytest.approx(1)
    with pytest.raises(InputError, match="received `euclid`"):
        context_distances(apart, "euclid")
    with pytest.raises(InputError, match="1 of 2 do not, the first is 1"):
        context_distances([[1, 2], [0, 0]])


CLASSES = np.arange(N_SYMBOLS) % K


@pytest.mark.parametrize("distance", ["variation", "hellinger", "cosine"])
def test_aligned_data_score_one_and_shuffled_ones_nought(distance):
    found = distributional_alignment(contrastive(20_000), CLASSES, distance)
    assert found.score == pytest.approx(1, abs=0.05)
    assert found.auc == 1
    assert found.split < 0.4  # 5 % of 8 pairs, expected
    assert found.merged == 0
    assert abs(found.shuffled) < 0.1
    assert found.equivalent == pytest.approx(found.floor, abs=0.05)
    strange = distributional_alignment(contrastive(20_000), rng(3).permutation(CLASSES), distance)
    assert abs(strange.score) < 0.35


def test_exact_tables_and_misaligned_data():
    a, b, c = modular()
    table = tabulate(a, np.c_[b, c])
    exact = distributional_alignment(table, CLASSES, exact=True)
    assert (exact.score, exact.floor, exact.split, exact.merged) == (1, 0, 0, 0)
    finer = distributional_alignment(np.eye(N_SYMBOLS), CLASSES, exact=True)
    assert (finer.score, finer.split, finer.merged) == (0, 1, 0)  # every symbol a world of its own
    coarser = distributional_alignment(np.ones((N_SYMBOLS, 4)), CLASSES, exact=True)
    assert (coarser.score, coarser.split, coarser.merged) == (0, 0, 1)  # all used alike


def test_misalignment_lowers_what_it_should():
    """Classes of 8 for data whose symbols differ by 16: equivalent pairs are told apart."""
    r = rng(0)
    a, b = r.integers(0, N_SYMBOLS, (2, 20_000))
    own = tabulate(a, np.c_[b, (a + b) % N_SYMBOLS])
    found = distributional_alignment(own, CLASSES)
    assert found.split > 0.9
    assert found.score < 0.2
    levels = [
        distributional_alignment(contrastive(20_000, shift), CLASSES) for shift in (0.0, 0.5, 0.9)
    ]
    others = [level.other - level.floor for level in levels]
    assert others == sorted(others, reverse=True)
    nothing = distributional_alignment(contrastive(20_000, 1.0), CLASSES)
    assert nothing.merged > 0.85
    assert nothing.score == 0  # nothing is told apart beyond the floor


@pytest.mark.parametrize("distance", ["variation", "hellinger", "cosine"])
def test_the_floor_is_what_fresh_samples_of_one_law_have(distance):
    law = rng(0).dirichlet(np.full(30, 0.3), size=2)[CLASSES % 2]
    draw = lambda s: np.stack([rng([s, i]).multinomial(60, p) for i, p in enumerate(law)])
    classes = CLASSES % 2
    found = [distributional_alignment(draw(s), classes, distance, seed=s) for s in range(6)]
    floors, equals = ([getattr(x, key) for x in found] for key in ("floor", "equivalent"))
    assert np.mean(floors) == pytest.approx(np.mean(equals), abs=0.01)
    biased = distance != "cosine"
    assert (np.mean(equals) > 0.1) == biased  # the bias is in both
    assert 0.01 < np.mean([x.split for x in found]) < 0.12
    assert np.mean([x.score for x in found]) == pytest.approx(1, abs=0.03)


def test_sentences():
    table = contrastive(500)
    with pytest.raises(InputError, match=r"a class for each of 16 symbols; received \(3,\)"):
        distributional_alignment(table, [0, 1, 2])
    with pytest.raises(InputError, match="received 16 classes of 16 symbols"):
        distributional_alignment(table, np.arange(16))
    with pytest.raises(InputError, match="at least 20 repeats; received 3"):
        distributional_alignment(table, CLASSES, repeats=3)
    sparse = np.eye(16, dtype=int)
    with pytest.raises(InputError, match="120 of 120 pairs have none"):
        distributional_alignment(sparse, CLASSES, "cosine")
