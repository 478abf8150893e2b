"""Lists of rows: by number, by id, with what they point to."""

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import Listed

TWINS = Listed(
    "have a twin",
    np.array([2, 0]),
    {"twin": np.array([0, -1]), "distance": np.array([0.1, 0.2])},
    pointers=("twin",),
)


def test_numbers_of_the_whole_and_ids():
    whole = TWINS.of(np.array([10, 11, 12]))
    assert whole.table() == {"row": [12, 10], "twin": [10, -1], "distance": [0.1, 0.2]}
    named = whole.named(lambda rows: np.array([f"s{row}" for row in rows]))
    assert named.table()["id"] == ["s12", "s10"]
    assert named.table()["twin_id"] == ["s10", ""]
    assert named.json()["ids"] == ["s12", "s10"]
    assert named.json()["total"] == 2


def test_the_worst_are_kept_and_all_are_counted():
    one = TWINS.first(1)
    assert one.json() == {
        "says": "have a twin",
        "total": 2,
        "ids": [2],
        "row": [2],
        "twin": [0],
        "distance": [0.1],
    }


def test_a_column_of_another_length_is_refused():
    with pytest.raises(InputError, match="each of 2 rows; `far` has 3"):
        Listed("are far", np.arange(2), {"far": np.arange(3)})
