"""Laws of every measure of the catalogue: range, collapse, ideal, permutation, NaN refused."""

import math

import numpy as np
import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.measures import CATALOGUE, Measure, Space, measure_of

COMPUTED = [one for one in CATALOGUE.values() if one.of is not None]
rng = np.random.default_rng(0)


def space(x, shuffle=None):
    noise = np.random.default_rng(1).normal(size=x.shape)
    labels = (np.arange(len(x)) % 3).astype(np.int64)
    views = x + 0.1 * noise, x - 0.1 * noise
    if shuffle is None:
        return Space(x, views, labels)
    return Space(x[shuffle], (views[0][shuffle], views[1][shuffle]), labels[shuffle])


ROWS = {
    "spread": rng.normal(size=(60, 6)),
    "cone": rng.normal(size=(60, 6)) + 5,
    "thin": rng.normal(size=(60, 2)) @ rng.normal(size=(2, 6)),
    "wide": rng.normal(size=(20, 40)),
    "heavy": rng.standard_t(1.5, size=(60, 6)),
    "with a zero row": np.vstack([np.zeros((1, 6)), rng.normal(size=(59, 6))]),
}


@pytest.mark.parametrize("one", COMPUTED, ids=lambda one: one.name)
@pytest.mark.parametrize("name", ROWS)
def test_its_range(one: Measure, name):
    value = one(space(ROWS[name]))
    if (one.name, name) == ("alpha_req", "thin"):  # a line needs three points
        assert value is None
        return
    assert math.isfinite(value)
    assert one.low is None or value >= one.low - 1e-9
    assert one.high is None or value <= one.high + 1e-9


@pytest.mark.parametrize("one", COMPUTED, ids=lambda one: one.name)
def test_the_order_of_rows_does_not_matter(one: Measure):
    x = ROWS["cone"]
    order = np.random.default_rng(2).permutation(len(x))
    assert one(space(x, order)) == pytest.approx(one(space(x)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "one", [m for m in COMPUTED if m.collapsed is not None], ids=lambda one: one.name
)
def test_its_value_where_all_is_one_point(one: Measure):
    x = np.full((40, 5), 0.3)
    assert one(Space(x, (x, x), np.arange(40) % 2)) == pytest.approx(one.collapsed, abs=1e-4)


@pytest.mark.parametrize(
    "one", [m for m in COMPUTED if m.ideal is not None], ids=lambda one: one.name
)
def test_its_value_where_all_is_even(one: Measure):
    x = np.vstack([np.eye(6), -np.eye(6)])
    assert one(Space(x, (x, x), np.tile(np.arange(6), 2))) == pytest.approx(one.ideal, abs=1e-4)


@pytest.mark.parametrize("one", COMPUTED, ids=lambda one: one.name)
def test_nan_is_refused_and_named(one: Measure):
    x = ROWS["spread"].copy()
    x[7, 1] = math.nan
    with pytest.raises(InputError, match="first is row 7"):
        one(Space(x, (x, x), np.arange(60) % 2))


def test_each_says_what_it_is():
    for name, one in CATALOGUE.items():
        assert one.name == name
        assert one.label
        if one.of is not None:
            assert one.formula, name
            assert one.protocol, name
            assert one.better in ("", "higher", "lower")
    assert len({one.label for one in CATALOGUE.values()}) == len(CATALOGUE)


def test_labels_and_views_that_are_missing_give_none():
    bare = Space(ROWS["spread"])
    missing = {one.name for one in COMPUTED if one(bare) is None}
    assert missing == {one.name for one in COMPUTED if one.needs != "rows"}
    assert measure_of("z_knn_accuracy") is CATALOGUE["knn_accuracy"]
    assert measure_of("nonsense") is None


def test_a_measure_that_breaks_a_law_is_caught():
    bad = Measure("bad", "bad", low=0, high=1, of=lambda space: float(space.x[0, 0]) - 9)
    with pytest.raises(AssertionError):
        test_its_range(bad, "spread")
    with pytest.raises(AssertionError):
        test_the_order_of_rows_does_not_matter(bad)


def test_every_measure_is_in_a_diagnosis_and_on_the_page():
    from chiaroscuro.diagnostics import diagnose
    from chiaroscuro.report.document import document

    x = rng.normal(size=(80, 6))
    views = {"h1": x + 0.1, "h2": x - 0.1, "labels": np.arange(80) % 4}
    measures = diagnose({"h": x, **views}).measures
    assert {one.name for one in COMPUTED} <= set(measures)
    assert set(document([])["measures"]) == set(CATALOGUE)


def test_one_line_of_the_catalogue_adds_a_measure_everywhere(monkeypatch, tmp_path):
    from chiaroscuro.artifacts import Embeddings
    from chiaroscuro.diagnostics import diagnose
    from chiaroscuro.measures.__main__ import page
    from chiaroscuro.report.document import document
    from chiaroscuro.report.subject import subjects

    new = Measure("largest_entry", "largest entry", of=lambda space: float(abs(space.x).max()))
    monkeypatch.setitem(CATALOGUE, new.name, new)
    x = rng.normal(size=(80, 6))
    found = diagnose({"h": x, "z": x[:, :3]})
    assert found.measures["largest_entry"] == abs(x).max()
    assert found.measures["z_largest_entry"] == abs(x[:, :3]).max()
    assert "largest entry" in str(found)
    assert "largest entry" in page()
    shown = document(subjects(Embeddings(h=x).save(tmp_path / "a.npz")))
    assert shown["measures"]["largest_entry"]["label"] == "largest entry"
    assert shown["runs"][0]["frames"][-1]["h"]["largest_entry"] == pytest.approx(abs(x).max())


def test_the_page_of_the_docs_is_the_catalogue():
    from pathlib import Path

    from chiaroscuro.measures.__main__ import page

    written = Path(__file__).resolve().parents[2] / "docs" / "measures.md"
    assert written.read_text() == page()
