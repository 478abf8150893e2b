"""From rows to tensors: which rows, and what makes a sample plain."""

import numpy as np
import pytest

from chiaroscuro.data import open_data
from chiaroscuro.engine.batches import spaced


@pytest.mark.parametrize(("n", "rows"), [(1, [0]), (4, [0, 3, 6, 9]), (30, list(range(10)))])
def test_spaced_rows_reach_from_end_to_end(n, rows):
    data = open_data({"x": np.arange(10)}).take(np.arange(9, -1, -1))
    assert spaced(data, n).column("x").tolist() == [9 - row for row in rows]
