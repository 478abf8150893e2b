"""What a diagnosis reads: sizes it can square, labels of any size, rows that stay together."""

import numpy as np
import pytest

from chiaroscuro.diagnostics import Context, Labelled, diagnose, ridge_probe
from chiaroscuro.errors import InputError

RNG = np.random.default_rng(0)
H = RNG.normal(size=(200, 8))
Y = RNG.integers(0, 3, 200)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_numbers_whose_squares_leave_float64_are_refused_and_not_called_collapsed(factor):
    with pytest.raises(InputError, match="squares can be added"):
        diagnose({"h": factor * H})


@pytest.mark.parametrize("factor", [1e100, 1e-100])
def test_a_factor_changes_no_judgement(factor):
    one, other = diagnose({"h": H, "labels": Y}), diagnose({"h": factor * H, "labels": Y})
    names = ("effective_rank", "numerical_rank", "linear_accuracy", "knn_accuracy", "uniformity")
    for name in names:
        assert other.measures[name] == pytest.approx(one.measures[name], abs=1e-9), name


def test_labels_may_be_numbers_of_any_size():
    few = diagnose({"h": H, "labels": np.where(Y == 0, -1, Y)}).measures
    many = diagnose({"h": H, "labels": np.where(Y == 0, -1, Y * 10**12)}).measures
    few["class_tightest"] = many["class_tightest"] = None  # the number of a class, not a size
    assert {k: v for k, v in many.items() if v is not None} == pytest.approx(
        {k: v for k, v in few.items() if v is not None}
    )


def test_no_dimension_is_counted_as_none():
    with pytest.raises(InputError, match="has 0"):
        diagnose(np.zeros((100, 0)))


@pytest.mark.parametrize("layer", ["untrained", "input"])
def test_a_layer_with_nan_is_named(layer):
    bad = np.ones((200, 4))
    bad[7] = np.nan
    with pytest.raises(InputError, match=f"layer_{layer}.*row 7"):
        diagnose({"h": H, "labels": Y, "layers": {layer: bad}})


def test_a_probe_that_has_seen_one_class_names_it():
    split = (np.arange(200) >= 100).astype(int)
    y = np.where(split == 0, 0, Y)
    found = diagnose({"h": H, "labels": y, "split": split}).measures
    assert found["linear_accuracy"] == np.mean(y[100:] == 0)
    rare = diagnose({"h": H, "labels": (np.arange(200) == 0).astype(int)}).measures
    assert rare["linear_accuracy"] >= 0.99


def test_a_probe_does_not_see_the_scale():
    both = Labelled(H + 2 * np.eye(3, 8)[Y], Y)
    assert ridge_probe(both, both) == ridge_probe(*[Labelled(1e-30 * both.h, Y)] * 2) > 0.8


def test_what_made_a_row_stays_with_it_when_rows_are_drawn():
    n = 1000
    h1 = np.tile([1.0, 0.0], (n, 1)) + 1e-3 * RNG.normal(size=(n, 2))
    omega = np.zeros(n, dtype=[("angle", float)])
    omega["angle"] = RNG.uniform(0, 1, n)
    h2 = np.c_[np.cos(omega["angle"]), np.sin(omega["angle"])]
    whole = diagnose({"h1": h1, "h2": h2}, Context(parameters=omega)).measures
    some = diagnose({"h1": h1, "h2": h2}, Context(parameters=omega), rows=300).measures
    assert min(whole["movement_by_angle"], some["movement_by_angle"]) > 0.9
    with pytest.raises(InputError, match="each of 1000 rows"):
        diagnose({"h1": h1, "h2": h2}, Context(parameters=omega[:500]), rows=300)


def test_movement_of_h_alone_knows_both_views():
    n = 400
    first, second = (np.zeros(n, dtype=[("angle", float)]) for _ in range(2))
    first["angle"], second["angle"] = RNG.uniform(0, 1, (2, n))
    turned = lambda omega: np.c_[np.cos(omega["angle"]), np.sin(omega["angle"])]
    context = Context(parameters=second, first_parameters=first)
    found = diagnose({"h1": turned(first), "h2": turned(second)}, context).measures
    assert found["movement_by_angle"] > 0.85


def test_a_training_too_short_for_a_recorded_loss_has_still_hardly_begun():
    z1, z2 = RNG.normal(size=(2, 300, 8))
    found = diagnose({"z1": z1, "z2": z2}, Context(history=[{"step": 6, "epoch": 1}]))
    assert found.findings[0].name == "hardly_trained"
    assert diagnose({"z1": z1, "z2": z2}).findings[0].name == "mispaired_views"
