"""What a page shows of every epoch: densities of similarities, against loops."""

import numpy as np
import pytest

from chiaroscuro.report import numbers
from chiaroscuro.report.axes import unit_rows

rng = np.random.default_rng(0)


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
