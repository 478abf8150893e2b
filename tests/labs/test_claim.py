"""Rules, verdicts, and that planted wrong numbers are told apart."""

import dataclasses
import json
import math

import pytest

from chiaroscuro.errors import InputError
from chiaroscuro.labs import VERDICTS, Claim, Erratum, Remark, Stated, interval, judged, satisfied
from chiaroscuro.labs.claim import spread

SAME = Stated("V0.same", "they agree", "Sec. 1", "identity", "error < 1e-10")
GAIN = Stated("V0.gain", "it gains", "Fig. 1", 0.5, "gain > 0.1 and n > 2", enough="n_seeds >= 3")
WRONG = Erratum("V0.wrong", "eq. (1)", "a = b.", "error < 1e-10", "a = 2b.", "error < 1e-10")


@pytest.mark.parametrize(
    ("rule", "ours", "expected"),
    [
        ("x < 1", {"x": 0.5}, True),
        ("x < 1", {"x": 1.0}, False),
        ("x <= 1", {"x": 1.0}, True),
        ("x > 1e-2", {"x": 1e-2}, False),
        ("x >= -1e-2", {"x": -1e-2}, True),
        ("x == 0", {"x": 0}, True),
        ("x == 0", {"x": 1}, False),
        ("x < 1 and y > 2", {"x": 0, "y": 3}, True),
        ("x < 1 and y > 2", {"x": 0, "y": 2}, False),
        ("x < 1 and y > 2", {"x": 1, "y": 3}, False),
        ("x < y", {"x": 1, "y": 2}, True),
        ("x < y", {"x": [1, 2], "y": [2, 1]}, False),
        ("x < y", {"x": [1, 2], "y": 3}, True),
        ("x < 1", {"x": [0.5, 2.0, 0.5]}, False),
        ("x < 1", {"x": math.nan}, False),
        ("x > 1", {"x": math.nan}, False),
        ("x < 1", {"x": [0.0, math.nan]}, False),
        ("x < 1", {"x": math.inf}, False),
    ],
)
def test_a_rule_says_what_it_says(rule, ours, expected):
    assert satisfied(rule, ours) is expected


@pytest.mark.parametrize(
    ("rule", "ours", "word"),
    [
        ("x < 1", {"y": 1}, "`x`"),
        ("x ~ 1", {"x": 1}, "x ~ 1"),
        ("x < 1 or y > 2", {"x": 1, "y": 1}, "or"),
        ("x < y", {"x": [1, 2], "y": [1, 2, 3]}, "2 and 3"),
        ("x < 1", {"x": []}, "0"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rule, ours, word):
    with pytest.raises(InputError) as refused:
        satisfied(rule, ours)
    assert word in str(refused.value)


def test_planted_numbers_are_told_apart():
    assert SAME.judge(error=1e-16).verdict == "holds"
    assert SAME.judge(error=1e-9).verdict == "fails"
    assert SAME.judge(error=math.nan).verdict == "fails"
    good = {"gain": [0.2, 0.3, 0.4], "n": 5}
    assert GAIN.judge(**good, n_seeds=3).verdict == "holds"
    assert GAIN.judge(**good, n_seeds=2).verdict == "inconclusive"
    assert GAIN.judge(gain=[0.2, 0.3, 0.05], n=5, n_seeds=3).verdict == "fails"
    assert GAIN.judge(gain=[0.2], n=2, n_seeds=3).verdict == "fails"


def test_an_identity_is_never_inconclusive():
    for error in (0.0, 1.0, math.nan, math.inf):
        assert SAME.judge(error=error).verdict in ("holds", "fails")


def test_an_erratum_needs_the_printed_form_to_fail_and_the_other_to_hold():
    small, large = {"error": 1e-15}, {"error": 0.3}
    assert WRONG.judge(printed=large, corrected=small).verdict == "erratum"
    assert WRONG.judge(printed=small, corrected=small).verdict == "holds"  # the paper is right
    assert WRONG.judge(printed=small, corrected=large).verdict == "holds"
    assert WRONG.judge(printed=large, corrected=large).verdict == "fails"
    few = dataclasses.replace(WRONG, enough="n >= 3")
    assert few.judge(printed=large, corrected={**small, "n": 2}).verdict == "inconclusive"
    assert few.judge(printed=large, corrected={**small, "n": 3}).verdict == "erratum"


def test_records_carry_what_the_contract_names():
    plain = SAME.judge(error=1e-16).record()
    keys = ["id", "statement", "where", "paper", "ours", "rule", "verdict", "kind"]
    assert list(plain) == keys
    both = WRONG.judge(printed={"error": 1.0}, corrected={"error": 0.0}).record()
    assert list(both) == [*keys, "printed", "corrected"]
    assert both["printed"]["ours"] == {"error": 1.0}
    assert both["printed"]["holds"] is False
    assert both["corrected"]["holds"] is True
    json.dumps([plain, both], allow_nan=False)
    assert Claim(**both).record() == both


def test_a_record_has_no_nan():
    record = SAME.judge(error=math.nan).record()
    assert record["ours"] == {"error": "nan"}
    json.dumps(record, allow_nan=False)


def test_what_was_not_run_says_why():
    claim = SAME.not_run("CIFAR-10 is not here")
    assert claim.verdict == "not_run"
    assert "CIFAR-10" in claim.ours["missing"]


def test_a_made_up_verdict_is_refused():
    with pytest.raises(InputError, match="perhaps"):
        Claim("V0", "", "", 0, {}, "", "perhaps")
    with pytest.raises(InputError, match="guess"):
        Claim("V0", "", "", 0, {}, "", "holds", kind="guess")
    assert len(VERDICTS) == 8


def test_the_interval_is_students():
    import numpy as np
    from scipy import stats

    values = [0.3, 0.1, 0.45, 0.2]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    ours = interval(values)
    assert (ours.mean, ours.error) == pytest.approx((np.mean(values), stats.sem(values)))
    assert (ours.low, ours.high) == pytest.approx((low, high))
    assert interval([1.0]).low == -math.inf
    assert math.isnan(interval([]).mean)


CLOSE = [0.09, 0.11, 0.10, 0.12, 0.08]  # mean 0.1, interval 0.08 to 0.12
WIDE = [0.9, -0.6, 0.5, -0.4, 0.1]  # mean 0.1, interval -0.66 to 0.86


@pytest.mark.parametrize(
    ("rule", "gain", "expected"),
    [
        ("mean(gain) > 0", CLOSE, "holds"),
        ("mean(gain) > 0.05", CLOSE, "holds"),
        ("mean(gain) < 0", CLOSE, "fails"),
        ("mean(gain) > 0.2", CLOSE, "fails"),
        ("mean(gain) > 0.1", CLOSE, "inconclusive"),
        ("mean(gain) > 0", WIDE, "inconclusive"),
        ("mean(gain) > 0 (the paper's effect: gain = 0.5)", WIDE, "inconclusive"),
        ("mean(gain) > 0 (the paper's effect: gain = 2)", WIDE, "fails"),
        ("mean(gain) > 0 (the paper's effect: gain = 2)", CLOSE, "holds"),
        ("mean(gain) > 0 and gain > 0", WIDE, "fails"),
        ("mean(gain) > 0 and n == 5", WIDE, "inconclusive"),
        ("mean(gain) > 0 and n == 4", WIDE, "fails"),
        ("mean(gain) > 0 (to judge at all: n >= 6)", CLOSE, "inconclusive"),
        ("mean(gain) > 0 (the paper's effect: gain = 2) (to judge at all: n >= 6)", WIDE,
         "inconclusive"),
        ("mean(gain) > 0", [0.1], "inconclusive"),
        ("mean(gain) > 0", [0.1, math.nan], "fails"),
        ("mean(gain) > 0", [0.0, 0.0], "fails"),
        ("mean(gain) >= 0", [0.0, 0.0], "holds"),
        ("mean(gain) > mean(base)", CLOSE, "holds"),
        ("mean(gain) < base", CLOSE, "fails"),
    ],
)  # fmt: skip
def test_means_are_judged_by_their_interval(rule, gain, expected):
    base = [0.05, 0.06, 0.07, 0.05, 0.06]
    assert judged(rule, {"gain": gain, "n": 5, "base": base[: len(gain)]}) == expected


def test_the_paired_difference_is_judged_not_both_means():
    first, second = [1.0, 2.0, 3.0, 4.0], [0.9, 1.8, 2.9, 3.8]
    assert judged("mean(a) > mean(b)", {"a": first, "b": second}) == "holds"
    assert judged("mean(a) > mean(b)", {"a": first, "b": second[::-1]}) == "inconclusive"


@pytest.mark.parametrize(
    ("effect", "expected"), [(0.04, "inconclusive"), (0.5, "fails"), (-0.04, "inconclusive")]
)
def test_a_difference_of_means_is_held_against_the_effect_of_the_paper(effect, expected):
    ours = {"a": [1.0, 2.0, 3.0], "b": [1.02, 1.97, 2.98]}  # 0.01 +- 0.066
    assert judged(f"mean(a) > mean(b) (the paper's effect: a - b = {effect})", ours) == expected
    claim = Stated("V0", "", "", 0, "mean(a) > mean(b)", effect=f"a - b = {effect}").judge(**ours)
    assert claim.verdict == expected


def test_a_difference_of_means_states_its_interval():
    a, b = [1.0, 2.0, 3.0, 4.0], [0.9, 1.8, 2.9, 3.9]
    ours = Stated("V0", "", "", 0, "mean(a) > mean(b)", enough="n >= 3").judge(a=a, b=b, n=4).ours
    over = interval([x - y for x, y in zip(a, b, strict=True)])
    kept = [ours[f"a_minus_b_{name}"] for name in ("mean", "se", "half")]
    assert kept == [over.mean, over.error, over.half]
    assert over.mean + over.half == pytest.approx(over.high)
    assert ours["a_mean"] == 2.5
    recorded = spread("mean(a) > mean(b) (to judge at all: n >= 3)", {"a": a, "b": b})
    assert recorded["a_minus_b_half"] == over.half


def test_an_effect_is_of_a_mean_of_the_rule():
    for effect in ("b - a = 1", "a = 1", "c = 1"):
        with pytest.raises(InputError, match="needs means of its rule"):
            Stated("V0", "", "", 0, "mean(a) > mean(b)", effect=effect)
    with pytest.raises(InputError, match="needs means of its rule"):
        Stated("V0", "", "", 0, "gain > 0", effect="gain = 1", enough="n >= 3")


def test_means_of_errata_and_remarks_may_decide_nothing():
    rule = "mean(x) > 0.1"
    low, wide, high = [0.0, 0.01, 0.0], [0.0, 0.1, 0.3], [0.3, 0.31, 0.3]
    for expected, ours, verdict in (
        (low, high, "remark"),
        (wide, high, "inconclusive"),
        (low, wide, "inconclusive"),
        (high, wide, "fails"),
        (wide, low, "fails"),
    ):
        remark = Remark("V0", "", "", rule, "", rule).judge({"x": expected}, {"x": ours})
        assert remark.verdict == verdict
        assert remark.ours["x_half"] == interval(ours).half
        wrong = Erratum("V0", "", "", rule, "", rule).judge({"x": expected}, {"x": ours})
        assert wrong.verdict == (
            "holds" if expected is high else verdict.replace("remark", "erratum")
        )


def test_a_mean_states_its_standard_error():
    claim = Stated("V0.mean", "it gains", "Fig. 1", 1, "mean(gain) > 0").judge(gain=[1.0, 2.0, 3.0])
    assert claim.kind == "empirical"
    assert claim.ours["gain_mean"] == 2.0
    assert claim.ours["gain_se"] == pytest.approx(1 / math.sqrt(3))


def test_kinds_of_claims():
    assert SAME.kind == "identity"
    assert GAIN.kind == "empirical"
    for rule in ("ks < 1.95 and n == 2", "n == 2 and largest_z < 5", "z_mean < 5"):
        assert Stated("V0", "", "", 0, rule).kind == "empirical"
    assert Stated("V0", "", "", 0, "blocks < 3 and z_small > 1").kind == "identity"
    for kind in ("definition", "remark"):
        stated = dataclasses.replace(SAME, kind=kind)
        assert stated.judge(error=0.0).verdict == kind
        assert stated.judge(error=1.0).verdict == "fails"
    typo = dataclasses.replace(WRONG, kind="typo")
    assert typo.judge(printed={"error": 1.0}, corrected={"error": 0.0}).verdict == "typo"
    assert typo.judge(printed={"error": 0.0}, corrected={"error": 0.0}).verdict == "holds"
    quoted = dataclasses.replace(WRONG, quote="a = b", why="b is not free").judge(
        printed={"error": 1.0}, corrected={"error": 0.0}
    )
    assert quoted.printed["quote"] == "a = b"
    assert quoted.printed["why"] == "b is not free"
    with pytest.raises(InputError, match="can never be inconclusive"):
        Stated("V0", "", "", 0, "mean(x) > 0", kind="identity")
    with pytest.raises(InputError, match="no known kind"):
        Stated("V0", "", "", 0, "x > 0", kind="erratum")
    with pytest.raises(InputError, match="no known kind"):
        dataclasses.replace(WRONG, kind="remark")
