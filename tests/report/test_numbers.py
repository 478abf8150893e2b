"""The measures of a page, against loops and against those of `diagnostics`."""

import numpy as np
import pytest

from chiaroscuro.report import numbers
from chiaroscuro.report.axes import nearest, unit_rows

rng = np.random.default_rng(0)


def test_they_are_those_of_the_diagnostics():
    torch = pytest.importorskip("torch")
    from chiaroscuro import diagnostics

    x = (rng.normal(size=(150, 9)) * np.linspace(1, 0.01, 9)).astype(np.float32)
    y = x + 0.1 * rng.normal(size=x.shape).astype(np.float32)
    labels = rng.integers(0, 3, 150)
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    found = numbers.spectrum(x)
    assert found["effective_rank"] == pytest.approx(
        diagnostics.effective_rank(tensors[0]), rel=1e-5
    )
    assert found["participation_ratio"] == pytest.approx(
        diagnostics.participation_ratio(tensors[0]), rel=1e-5
    )
    u, v = unit_rows(x), unit_rows(y)
    assert numbers.uniformity(u) == pytest.approx(diagnostics.uniformity(tensors[0]), abs=1e-5)
    assert numbers.alignment(u, v) == pytest.approx(diagnostics.alignment(*tensors), abs=1e-5)
    near, _ = nearest(u, 20)
    theirs = diagnostics.knn_leave_one_out(x, labels)
    assert numbers.knn_accuracy(near, labels) == pytest.approx(theirs, abs=0.03)


def test_collapse_and_ideal():
    diagnostics = pytest.importorskip("chiaroscuro.diagnostics")
    same = np.full((500, 4), 0.1)  # its mean is not 0.1 to the last bit
    for name in ("effective_rank", "participation_ratio"):
        assert numbers.spectrum(same)[name] == getattr(diagnostics, name)(same) == 0
    assert numbers.uniformity(unit_rows(same)) == pytest.approx(0, abs=1e-6)
    basis = np.vstack([np.eye(5), -np.eye(5)])
    assert numbers.spectrum(basis)["effective_rank"] == pytest.approx(5)


def test_zero_rows_are_no_unit_rows():
    diagnostics = pytest.importorskip("chiaroscuro.diagnostics")
    x = rng.normal(size=(50, 4))
    x[:9] = 0
    theirs = diagnostics.uniformity(x)
    assert numbers.uniformity(unit_rows(x)) == pytest.approx(theirs, abs=1e-6)


def test_densities_integrate_to_one_and_split_pairs_by_label():
    u = unit_rows(rng.normal(size=(60, 4)))
    views = u, unit_rows(u + 0.1 * rng.normal(size=u.shape))
    labels = np.arange(60) % 2
    labels[:5] = -1
    found = numbers.similarities(u, views, labels)
    for one in found.values():
        assert sum(one["density"]) * 2 / numbers.BINS == pytest.approx(1)
    same = other = 0
    for i in range(60):
        for j in range(i):
            if labels[i] == labels[j] >= 0:
                same += 1
            else:
                other += 1
    assert found["false_negatives"]["n"] == same
    assert found["negatives"]["n"] == other
    assert found["positives"]["mean"] > found["negatives"]["mean"]
    assert set(numbers.similarities(u, None, None)) == {"negatives"}


def test_accuracy_of_neighbours_is_a_vote():
    near = np.array([[1, 2], [0, 2], [0, 1], [0, 1]])
    labels = np.array([0, 0, 1, -1])
    assert numbers.knn_accuracy(near, labels, 2) == pytest.approx(2 / 3)
    assert numbers.knn_accuracy(near, np.full(4, -1), 2) is None


def test_hubs():
    star = np.zeros((9, 1), dtype=int)
    star[0] = 1
    counts, skewness = numbers.hubness(star, 9)
    assert counts[0] == 8
    assert skewness > 2


def test_clusters_and_their_agreement():
    x = np.repeat(np.eye(3) * 9, 20, axis=0) + rng.normal(size=(60, 3))
    truth = np.repeat(np.arange(3), 20)
    assert numbers.mutual_information(numbers.clusters(x, 3), truth) == pytest.approx(1)
    assert numbers.clusters(np.zeros((5, 2)), 3).tolist() == [0] * 5
    assert numbers.mutual_information(truth, rng.permutation(truth)) < 0.2


def test_explained_variance():
    x = rng.normal(size=(400, 6))
    seen = x @ rng.normal(size=(6, 2))
    noisy = x[:, :1] + rng.normal(size=(400, 1))
    hidden = rng.normal(size=(400, 1))
    constant = np.ones((400, 1))
    shares = numbers.explained(x, [seen, noisy, hidden, constant])
    assert shares[0] > 0.999
    assert shares[1] == pytest.approx(0.5, abs=0.1)
    assert abs(shares[2]) < 0.1
    assert shares[3] is None


def test_more_dimensions_than_rows_do_not_explain_noise():
    x, y = rng.normal(size=(40, 200)), rng.normal(size=(40, 1))
    assert numbers.explained(x, [y])[0] < 0.3
