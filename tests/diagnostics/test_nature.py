"""What is harm and what is the nature of the data: each rule where it speaks and where it may not.

Facts alone where a threshold is meant, arrays where a sign is.
"""

import numpy as np
import pytest

from chiaroscuro.diagnostics import Facts, diagnose, findings
from chiaroscuro.diagnostics.assembly import signs
from chiaroscuro.diagnostics.assembly.signs import _levels_of_rows

N, D, CLASSES = 400, 24, 8


def rows(spread=1.0, d=D, classes=CLASSES, n=N):
    draw = np.random.default_rng(0)
    y = draw.integers(0, classes, n)
    h = draw.normal(size=(classes, d))[y] + spread * draw.normal(size=(n, d))
    return h, y, draw


def severity(subject, name):
    """Of a finding of facts or arrays; None where it is not made."""
    found = findings(subject) if isinstance(subject, Facts) else diagnose(subject).findings
    return next((one.severity for one in found if one.name == name), None)


def cost(cure, gain, low, of="knn_accuracy"):
    parts = {"of": of, "before": 0.5, "after": 0.5 + gain, "gain": gain, "low": low}
    parts |= {"high": 2 * gain - low, "n": 500}
    return {f"cure_{cure}_{key}": value for key, value in parts.items()}


# ---- labels ----


@pytest.mark.parametrize(
    ("knn", "chance", "n", "said"),
    [
        (0.587, 0.51, 300, None),  # 2.6 standard errors above
        (0.977, 0.937, 300, None),
        (0.426, 0.269, 61, None),
        (0.11, 0.10, 500, "critical"),
        (0.50, 0.50, 900, "critical"),
        (0.53, 0.49, 150, "note"),  # too few rows to say
        (0.947, 0.947, 300, "note"),  # nor does so large a class leave anything to see
    ],
)
def test_chance_is_where_accuracy_is_not_above_it_and_could_be(knn, chance, n, said):
    facts = Facts({"n": n, "labelled_rows": n, "knn_accuracy": knn, "knn_chance": chance})
    assert severity(facts, "at_chance") == said


def test_labels_that_a_probe_tells_are_not_out_of_order():
    facts = {"n": 500, "labelled_rows": 500, "knn_accuracy": 0.27, "knn_chance": 0.25}
    assert severity(Facts(facts | {"linear_accuracy": 0.26}), "at_chance") == "critical"
    assert severity(Facts(facts | {"linear_accuracy": 0.31}), "at_chance") == "note"
    assert severity(Facts(facts | {"linear_accuracy": 0.45}), "at_chance") == "warning"


def noise(**changed):
    known = {"suspect_labels": 0.2, "suspect_low": 0.15, "suspect_high": 0.25, "n": 500}
    known |= {"suspect_margin": 0.8, "suspect_count": 25, "suspect_rest": 0.25}
    return Facts(known | {"knn_accuracy": 0.78, "knn_chance": 0.3, "n_classes": 3} | changed)


def test_a_few_classes_must_be_told_apart_but_for_the_wrong_labels():
    assert severity(noise(), "label_noise") == "warning"
    assert severity(noise(knn_accuracy=0.6), "label_noise") == "note"


def test_labels_that_differ_on_a_map_may_be_neighbours_of_the_layout():
    strange = {"suspect_strange": 0.5, "suspect_strange_error": 0.05}
    assert severity(noise(**strange), "label_noise") == "warning"
    assert severity(noise(kind="map", **strange), "label_noise") == "note"
    few = {"suspect_strange": 0.45, "suspect_strange_error": 0.1}  # of eight rows
    assert severity(noise(**few), "label_noise") == "note"


# ---- rows ----


def test_zero_rows_that_cost_nothing_are_a_note():
    some = {"n": 300, "zero_rows": 15, "knn_accuracy": 0.9, "knn_chance": 0.1}
    assert severity(Facts(some | cost("nonzero", 0.004, 0.001)), "zero_rows") == "note"
    assert severity(Facts(some | cost("nonzero", 0.05, 0.03)), "zero_rows") == "warning"
    assert severity(Facts({"n": 300, "zero_rows": 15}), "zero_rows") == "warning"  # nothing known
    assert severity(Facts({"n": 300, "zero_rows": 5}), "zero_rows") == "note"


def test_hubs_without_labels_are_a_warning_where_most_rows_share_one():
    some = {"n": 300, "hub_skewness": 5.0, "orphans": 0.1}
    assert severity(Facts(some | {"hub_share": 0.45}), "hubs") == "note"
    assert severity(Facts(some | {"hub_share": 0.7}), "hubs") == "warning"
    assert severity(Facts(some | {"hub_share": 0.7, "rectified": True}), "hubs") == "note"


def test_an_offset_that_makes_hubs_is_their_cause():
    some = {"n": 300, "hub_skewness": 5.0, "orphans": 0.1, "hub_share": 0.8, "mean_cosine": 0.88}
    moved = cost("centre", 0.65, 0.63, of="neighbours")
    found = [(one.name, one.severity) for one in findings(Facts(some | moved))]
    assert found == [("common_offset", "warning"), ("hubs", "note")]
    rectified = findings(Facts(some | moved | {"rectified": True}))
    assert "common_offset" not in [one.name for one in rectified]


def test_groups_that_meet_are_no_two_encoders():
    some = {"n": 500, "n_classes": 5, "groups_told_by_labels": 0.0, "groups_share": 0.4}
    some |= cost("groups", 0.05, 0.02)
    assert severity(Facts(some | {"groups_apart": 0.85}), "mixed_encoders") == "note"
    assert severity(Facts(some | {"groups_apart": 0.99}), "mixed_encoders") == "warning"


# ---- collapse ----


def test_clusters_that_tell_the_classes_are_no_collapse():
    some = {"n": 500, "d": 12, "n_classes": 4, "points": 8, "points_share": 0.5}
    some |= {"points_purity": 0.9, "knn_accuracy": 0.92, "knn_chance": 0.3}
    assert severity(Facts(some), "point_collapse") == "note"
    fewer = {"points": 3, "points_purity": 0.6, "knn_accuracy": 0.6}
    assert severity(Facts(some | fewer), "point_collapse") == "critical"
    assert severity(Facts(some | fewer | {"knn_accuracy": 0.98}), "point_collapse") == "note"
    drowned = fewer | cost("columns", 0.26, 0.2)
    assert severity(Facts(some | drowned), "point_collapse") == "note"


def test_short_rows_are_no_point():
    """Of three gains in one file, the smallest brings all its rows to the middle."""
    h, y, draw = rows(spread=0.3)
    scaled = h * 6.0 ** draw.integers(-1, 2, size=(N, 1))
    found = diagnose({"h": scaled, "labels": y})
    assert "point_collapse" not in [one.name for one in found.findings]


def test_a_code_that_takes_half_of_the_rows_is_a_point():
    """Its rows lie at the middle of all, so that a typical distance from there is only noise."""
    _, y, draw = rows(spread=0.5)
    codes = draw.normal(size=(4, D))
    at = np.where(draw.random(N) < 0.55, 0, draw.integers(1, 4, N))
    found = diagnose({"h": codes[at] + 0.03 * draw.normal(size=(N, D)), "labels": y})
    assert found.measures["points"] == 4
    assert "point_collapse" in [one.name for one in found.findings if one.severity == "critical"]


def test_a_few_sums_of_columns_are_no_lost_directions():
    some = {"n": 500, "d": 18, "fall": 1e5, "fall_room": 18, "effective_rank": 10.0}
    some |= {"half_rank_costs": 0.07, "knn_accuracy": 0.8, "knn_chance": 0.1}
    assert severity(Facts(some | {"fall_at": 14}), "dimensional_collapse") == "note"
    assert severity(Facts(some | {"fall_at": 8}), "dimensional_collapse") == "warning"


def test_one_dependent_dimension_is_no_repetition():
    some = {"n": 300, "d": 40, **cost("even", 0.08, 0.04)}
    assert severity(Facts(some | {"dependent_dimensions": 1}), "repeated_dimensions") == "note"
    assert severity(Facts(some | {"dependent_dimensions": 4}), "repeated_dimensions") == "warning"


def test_directions_of_which_none_is_ahead_dominate_only_by_much():
    some = {"n": 300, "top_share": 0.2, "top_over_second": 1.1, "first_dimension": 0}
    ahead = {"top_share": 0.6, "top_over_second": 4.0}
    gain = cost("first", 0.1, 0.05)
    assert severity(Facts(some | gain), "dominating_direction") == "note"
    assert severity(Facts(some | gain | ahead), "dominating_direction") == "warning"
    assert severity(Facts(some | cost("first", 0.3, 0.25)), "dominating_direction") == "critical"


def test_units_that_hardly_ever_fire_are_dead_unless_all_are_sparse():
    h, y, _ = rows(spread=0.7)
    rare = 9 * np.maximum(h - np.quantile(h, 0.98, axis=0), 0)
    some = np.where(np.arange(D) < 20, rare, h)
    found = diagnose({"h": some, "labels": y})
    assert found.measures["silent_dimensions"] + found.measures["faint_dimensions"] == 20
    one = next(one for one in found.findings if one.name == "dead_dimensions")
    assert "have one and the same value in most rows" in one.evidence
    assert severity(Facts({"n": N, "d": D, "silent_dimensions": 24}), "dead_dimensions") is None
    known = {"n": N, "d": D, "faint_dimensions": 0, "constant_dimensions": 0}
    assert severity(Facts(known | {"silent_dimensions": 24}), "dead_dimensions") is None
    assert severity(Facts(known | {"silent_dimensions": 12}), "dead_dimensions") == "note"


def test_classes_at_one_point_are_told_from_classes_that_are_merely_tight():
    some = {"n": 400, "class_spread": 0.2, "class_tightest": 3, "knn_accuracy": 0.88}
    some |= {"knn_chance": 0.1, "n_classes": 15, "class_tightest_accuracy": 1.0}
    merged = {"tight_classes": 3, "tight_classes_accuracy": 0.5, "other_classes_accuracy": 0.97}
    assert severity(Facts(some), "class_collapse") == "note"
    assert severity(Facts(some | merged), "class_collapse") == "warning"
    wider = {"class_spread": 0.4, "class_tightest_takes": 0.3, "class_typical_takes": 0.02}
    assert severity(Facts(some | wider), "class_collapse") is None
    taking = wider | cost("tight_class", 0.3, 0.2)
    assert severity(Facts(some | taking), "class_collapse") == "warning"


def test_three_classes_at_one_point_are_counted():
    h, y, draw = rows(spread=0.4)
    at = np.isin(y, (1, 4, 6))
    h[at] = h[at].mean(axis=0) + 0.02 * draw.normal(size=(at.sum(), D))
    found = diagnose({"h": h, "labels": y}).measures
    assert found["tight_classes"] == 3
    assert found["tight_classes_accuracy"] < 0.6 < found["other_classes_accuracy"]


# ---- numbers of a row ----


def test_rows_on_grids_of_their_own_are_quantised():
    h, y, _ = rows()
    low, step = h.min(axis=1, keepdims=True), np.ptp(h, axis=1, keepdims=True) / 3
    found = diagnose({"h": low + step * np.round((h - low) / step), "labels": y})
    assert found.measures["row_levels"] == 4
    assert found.measures["levels"] > 100
    one = next(one for one in found.findings if one.name == "coarse_quantisation")
    assert "a row takes 4 different values" in one.evidence
    assert _levels_of_rows(h) == {}


def test_counts_over_their_sum_are_no_grid_of_a_row():
    counts = np.random.default_rng(0).poisson(1.0, size=(N, D)).astype(float)
    assert _levels_of_rows(counts / np.linalg.norm(counts, axis=1, keepdims=True)) == {}


def test_zero_rows_are_not_among_the_rows_of_length_one(monkeypatch):
    h, y, _ = rows(spread=0.5)
    h[::2] /= np.linalg.norm(h[::2], axis=1, keepdims=True)
    h[:40:4] = 0
    groups = []
    as_the_others = signs._as_the_others
    spy = lambda of, group: groups.append(group) or as_the_others(of, group)
    monkeypatch.setattr(signs, "_as_the_others", spy)
    diagnose({"h": h, "labels": y})
    even = np.arange(N) % 2 == 0
    assert (groups[0] == (even & h.any(axis=1))).all()


def test_labels_that_no_two_rows_share_are_diagnosed():
    h = np.random.default_rng(0).normal(size=(130, 12))
    found = diagnose({"h": h, "labels": np.arange(130)})
    assert found.measures["knn_accuracy"] == 0


def test_classes_at_one_point_are_one_finding_though_they_are_most():
    h, y, draw = rows(spread=0.5)
    kept = y < 3
    h, y = h[kept], y[kept]
    there = 2.0 * draw.normal(size=h.shape[1])
    away = h.copy()
    away[y < 2] = there + 0.05 * h[y < 2]  # near each other, and still told apart
    assert severity({"h": away, "labels": y}, "class_collapse") is None
    h[y < 2] = there + 0.05 * draw.normal(size=h[y < 2].shape)
    found = diagnose({"h": h, "labels": y})
    assert found.measures["point_classes"] == 2
    one = next(one for one in found.findings[:2] if one.name == "class_collapse")
    assert one.severity == "warning"
    assert one.evidence.startswith("2 classes lie at one point (0, 1): ")


def test_classes_whose_rows_are_one_and_the_same_lie_at_one_point():
    h, y, _ = rows(spread=0.5)
    h[(y == 1) | (y == 4) | (y == 6)] = h[0]
    found = diagnose({"h": h, "labels": y})
    one = next(one for one in found.findings if one.name == "class_collapse")
    assert one.evidence.startswith("3 classes lie at one point (1, 4, 6): ")


def test_classes_of_short_rows_that_are_told_apart_do_not_lie_at_one_point():
    h, y, draw = rows(d=64, n=600)
    h[y < 2] *= 0.15
    found = diagnose({"h": h, "labels": y})
    assert found.measures["point_classes_spread"] < 0.3
    assert found.measures["point_classes_together"] < 1.3 * found.measures["point_classes_spread"]
    assert found.measures["point_classes_accuracy"] > 0.95
    assert "class_collapse" not in [x.name for x in found.findings if x.severity != "note"]
    h[y < 2] = 0.15 * draw.normal(size=h[y < 2].shape)  # as short, and one cloud
    assert severity({"h": h, "labels": y}, "class_collapse") == "warning"


def test_a_change_of_length_along_the_file_is_told_by_the_order():
    h, y, draw = rows(spread=0.5)
    order = draw.permutation(len(h))
    h, y = h[order] * np.exp(0.3 * draw.normal(size=(len(h), 1))), y[order]
    longer = h.copy()
    longer[N // 2 :] *= 2.5
    found = diagnose({"h": longer, "labels": y})
    assert abs(found.measures["length_change_at"] - N // 2) < 0.05 * N
    assert found.measures["length_change"] > 8
    assert diagnose({"h": h, "labels": y}).measures["length_change"] < 5
    shuffled = diagnose({"h": longer[draw.permutation(N)], "labels": y})
    assert shuffled.measures["length_change"] < 5
    drawn = diagnose({"h": longer, "labels": y}, rows=200)  # numbers are of the whole
    assert abs(drawn.measures["length_change_at"] - N // 2) < 0.05 * N


def test_a_change_of_length_is_a_finding_where_it_costs():
    some = {"n": 500, "length_change": 12.0, "length_change_at": 300, "length_change_ratio": 1.8}
    of = {"of": "knn_accuracy_euclidean"}
    assert severity(Facts(some | cost("lengths", 0.1, 0.05, **of)), "mixed_scales") == "warning"
    assert severity(Facts(some | cost("lengths", 0.01, 0.0, **of)), "mixed_scales") is None
    one = findings(Facts(some | cost("lengths", 0.1, 0.05, **of)))[0]
    assert one.evidence.startswith("from about row 300 on rows are 1.8 times as long as before")


def test_the_mean_of_curves_is_no_offset_of_an_encoder():
    draw = np.random.default_rng(0)
    waves = np.cumsum(draw.normal(size=(400, 40)), axis=1)
    assert diagnose({"h": 100 + waves}).measures["curves"]
    assert "common_offset" not in [
        one.name for one in diagnose({"h": 100 + waves}).findings if one.severity != "note"
    ]
    mixed = 100 + waves @ np.linalg.qr(draw.normal(size=(40, 40)))[0]
    assert not diagnose({"h": mixed}).measures["curves"]
    assert diagnose({"h": mixed}).findings[0].name == "common_offset"


def test_rows_that_were_centred_too_are_not_cured_by_their_length():
    some = {"n": 500, "same_length": 0.5, "other_length_spread": 0.2, "same_length_is": 8.0}
    some |= cost("normalised", 0.1, 0.05, of="knn_accuracy_euclidean")
    one, other = (
        next(x for x in findings(Facts(some | {"normalised_centred": centred})))
        for centred in (False, True)
    )
    assert one.line.startswith("h = h / np.linalg.norm")
    assert "centred as well" in other.advice
    assert not other.line


# ---- pairs ----


def test_partners_of_rows_that_are_alike_are_seen_to_be_exchanged():
    h, _, draw = rows(spread=0.5)
    sides = [h + 0.1 * draw.normal(size=h.shape) for _ in range(2)]
    well = diagnose({"h1": sides[0], "h2": sides[1]})
    assert "mispaired_views" not in [one.name for one in well.findings]
    S = h @ h.T - np.diag(np.full(N, np.inf))
    to, left = np.arange(N), set(range(120))
    while left:
        i = left.pop()
        j = max(left, key=lambda k: S[i, k])
        left.remove(j)
        to[i], to[j] = j, i
    found = diagnose({"h1": sides[0], "h2": sides[1][to]})
    assert found.measures["exchanged"] == pytest.approx(0.3, abs=0.03)
    assert found.measures["exchanged"] > 0.8 * found.measures["astray"]
    one = next(one for one in found.findings if one.name == "mispaired_views")
    assert one.severity == "critical"
    assert "each nearest to the partner of the other" in one.evidence


def test_partners_that_were_filled_from_other_rows_are_seen():
    h, _, draw = rows(spread=0.5)
    sides = [h + 0.1 * draw.normal(size=h.shape) for _ in range(2)]
    to = np.arange(N)
    to[1::4] -= 1  # every fourth is missing, and takes the row before
    found = diagnose({"h1": sides[0], "h2": sides[1][to]})
    assert found.measures["borrowed"] > 0.15
    one = found.findings[0]
    assert (one.name, one.severity) == ("mispaired_views", "critical")
    assert "which other rows have as well, bit for bit" in one.evidence
    assert "filled" in one.cause


def test_samples_may_share_a_partner_that_fits_them():
    h, y, draw = rows(spread=0.5)
    captions = np.stack([h[y == k].mean(axis=0) for k in np.unique(y)])[y]
    found = diagnose({"h1": h + 0.1 * draw.normal(size=h.shape), "h2": captions})
    assert found.measures["borrowed"] < 0.03
    assert "mispaired_views" not in [one.name for one in found.findings]


def test_partners_that_were_filled_with_one_row_are_seen():
    h, _, draw = rows(spread=0.5)
    sides = [h + 0.1 * draw.normal(size=h.shape) for _ in range(2)]
    sides[1][1::4] = sides[1].mean(axis=0)
    one = diagnose({"h1": sides[0], "h2": sides[1]}).findings[0]
    assert one.name == "mispaired_views"
    assert one.cause.endswith("filled, with other rows or one for all")


def test_captions_that_all_samples_share_are_not_filled_in_where_the_encoder_is_weak():
    draw = np.random.default_rng(0)
    captions = np.repeat(draw.normal(size=(80, D)), 5, axis=0)
    found = diagnose({"h1": captions + 3 * draw.normal(size=(N, D)), "h2": captions})
    assert found.measures["shared_lost"] > 0.25
    assert found.measures["single_lost"] is None
    assert "mispaired_views" not in [one.name for one in found.findings]
    # every second partner taken from the row before: all are shared as well, and half are right
    h, _, draw = rows(spread=0.5)
    sides = [h + 0.1 * draw.normal(size=h.shape) for _ in range(2)]
    one = diagnose({"h1": sides[0], "h2": np.repeat(sides[1][::2], 2, axis=0)}).findings[0]
    assert (one.name, one.severity) == ("mispaired_views", "critical")
    assert "filled" in one.cause


def test_rows_that_are_equal_on_a_grid_share_no_partner():
    draw = np.random.default_rng(0)
    h = np.round(draw.normal(size=(2 * N, 4)))
    found = diagnose({"h1": h, "h2": np.round(h + 0.8 * draw.normal(size=h.shape))})
    assert found.measures["borrowed"] > 0.03
    assert found.measures["shared_lost"] > max(0.25, 2 * found.measures["single_lost"])
    assert "mispaired_views" not in [one.name for one in found.findings]


def test_rows_that_are_confused_by_chance_are_not_exchanged():
    h, _, draw = rows(spread=0.2)
    sides = [h + 0.4 * draw.normal(size=h.shape) for _ in range(2)]
    found = diagnose({"h1": sides[0], "h2": sides[1]})
    assert found.measures["astray"] > 0.5
    assert found.measures["exchanged"] < 0.2 * found.measures["astray"]
    assert "mispaired_views" not in [one.name for one in found.findings]


def pairs(**changed):
    known = {"n": 300, "pair_nearer": 0.93, "pair_error": 0.02, "pairs_lost": 0.11}
    known |= {"pairs_uniform": 0.06, "pairs_upper": 0.5, "pairs_middle": 0.04}
    return Facts(known | {"elsewhere": 0.5, "elsewhere_score": 0.0} | changed)


def test_a_tail_of_far_pairs_is_no_group_of_strangers():
    assert severity(pairs(), "mispaired_views") == "warning"
    assert severity(pairs(pairs_middle=0.22), "mispaired_views") is None
    sides = {"elsewhere": 0.3, "elsewhere_score": -2.5}  # unlike sides: lost rows stay on theirs
    assert severity(pairs(pairs_middle=0.1, **sides), "mispaired_views") is None
    assert severity(pairs(**sides), "mispaired_views") == "warning"  # right ones are clearly near


def test_two_encoders_may_have_scales_of_their_own():
    some = {"n": 300, "pair_nearer": 0.95, "pair_error": 0.02, "side_scale": 0.37}
    slight, much = (cost("scales", *x, of="recall_1_euclidean") for x in ((0.05, 0.02), (0.4, 0.3)))
    assert severity(Facts(some | slight), "side_scales") == "note"
    assert severity(Facts(some | much), "side_scales") == "critical"


# ---- trainings ----


def test_a_network_that_tells_far_more_than_its_input_is_not_blind_to_classes():
    some = {"n": 900, "last_loss": 1.0, "pair_nearer": 0.99, "knn_accuracy": 0.8}
    some |= {"false_hardest": 0.5, "false_all": 0.12}
    assert severity(Facts(some | cost("input", 0.06, 0.03)), "class_blind") == "warning"
    assert severity(Facts(some | cost("input", 0.2, 0.17)), "class_blind") is None


def test_a_probe_that_is_behind_alone_does_not_exchange_the_layers():
    some = {"n": 900, "linear_accuracy": 0.90, "z_linear_accuracy": 0.97, "linear_error": 0.01}
    knn = {"knn_accuracy": 0.97, "z_knn_accuracy": 0.98}
    assert severity(Facts(some | knn), "projector_for_encoder") is None
    behind = knn | {"knn_accuracy": 0.8}
    assert severity(Facts(some | behind), "projector_for_encoder") == "warning"
