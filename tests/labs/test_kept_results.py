"""Verdicts in the kept results follow from the numbers and from the data beside them."""

import copy
import json
from pathlib import Path

import pytest

from chiaroscuro import labs
from chiaroscuro.labs import pages

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
KEPT = [
    pytest.param(scale, lab, record, id=f"{scale}-{lab.paper}-{lab.name}")
    for scale in labs.SCALES
    for lab, record in pages.results(RESULTS, scale).items()
    if record
]
LAPTOP = pages.results(RESULTS)
EACH = pytest.mark.parametrize(("scale", "lab", "record"), KEPT)


def expected(claim):
    """The verdict of a claim by its rule and its numbers."""
    if "missing" in claim["ours"]:
        return "not_run"
    ours = pages._numbers(claim["ours"])
    enough = claim["rule"].removesuffix(")").partition(" (to judge at all: ")[2]
    if enough and not labs.satisfied(enough, ours):
        return "inconclusive"
    forms = [claim[name] for name in ("printed", "corrected", "expected") if name in claim]
    if not forms:
        verdict = labs.judged(claim["rule"], ours)
        kind = claim["kind"]
        return kind if verdict == "holds" and kind in ("definition", "remark") else verdict
    said = [labs.judged(form["rule"], pages._numbers(form["ours"])) for form in forms]
    if "expected" in claim:
        said.append(labs.judged(claim["rule"].partition("; expected fails ")[0], ours))
    if said[0] == "holds" and "printed" in claim:
        return "holds"
    if said[0] == "holds" or said[1] == "fails":
        return "fails"
    return claim["kind"] if said == ["fails", "holds"] else "inconclusive"


def from_data(lab, record):
    """The claims of a record by id, with the verdicts that the lab gives its data."""
    return [(claim.id, claim.verdict) for claim in lab.module.claims(record["result"])]


def held(record):
    return [(row["id"], row["verdict"]) for row in record["claims"]]


def page(scale, lab, record):
    """What the page of claims says of a record; `test_pages` compares that with the file."""
    lines = (
        pages._lab(lab, record)
        if scale == pages.SCALE
        else pages._other(lab, record, scale, LAPTOP[lab])
    )
    return "\n".join(lines)


@EACH
def test_verdicts_follow_from_the_numbers(scale, lab, record):
    assert record["scale"] == scale
    assert (record["lab"], record["paper"]) == (lab.name, lab.paper)
    for claim in record["claims"]:
        assert claim["verdict"] == expected(claim), claim["id"]
        for name in {"printed", "corrected", "expected"} & set(claim):
            form = claim[name]
            verdict = labs.judged(form["rule"], pages._numbers(form["ours"]))
            assert form["holds"] == (verdict == "holds"), claim["id"]


@EACH
def test_verdicts_follow_from_the_data_or_the_page_says_why_not(scale, lab, record):
    text = page(scale, lab, record)
    changed = pages.earlier(lab, record, scale)
    if changed:
        assert pages.EARLIER.format(changed="; ".join(changed)) in text
    else:
        assert "an earlier version" not in text
        assert from_data(lab, record) == held(record)


def test_no_kept_result_is_of_an_earlier_version():
    """Fails until the runs of every lab that has changed are made again and committed."""
    found = {
        param.id: pages.earlier(param.values[1], param.values[2], param.values[0]) for param in KEPT
    }
    found = {name: "; ".join(changed) for name, changed in found.items() if changed}
    assert not found, "\n".join(f"{name}: {changed}" for name, changed in found.items())


@EACH
def test_kept_files_are_small(scale, lab, record):
    assert (RESULTS / scale / lab.paper / f"{lab.name}.json").stat().st_size < 2**20


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A record that was just made, at its quick scale."""
    folder = tmp_path_factory.mktemp("kept")
    (report,) = labs.reproduce("atoms", out=folder)
    path = folder / "quick" / report.lab.paper / "atoms.json"
    return report.lab, json.loads(path.read_text())


def test_a_record_that_was_just_made_is_current(whole):
    lab, record = whole
    assert not pages.earlier(lab, record, "quick")
    assert from_data(lab, record) == held(record)
    assert all(claim["verdict"] == expected(claim) for claim in record["claims"])


def test_a_verdict_edited_by_hand_is_noticed(whole):
    lab, record = whole
    for i, row in enumerate(record["claims"]):
        edited = copy.deepcopy(record)
        edited["claims"][i]["verdict"] = "fails" if row["verdict"] != "fails" else "holds"
        assert not pages.earlier(lab, edited, "quick")
        assert from_data(lab, edited) != held(edited)
        assert edited["claims"][i]["verdict"] != expected(edited["claims"][i])


def edited(record, *path, value=None):
    """A copy with one entry replaced, or taken away."""
    twin = copy.deepcopy(record)
    at = twin
    for name in path[:-1]:
        at = at[name]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return twin


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("settings", "seeds"), [7], "changed settings `seeds`"),
        (("settings", "n_old"), 3, "changed settings `n_old`"),
        (("claims", 0, "rule"), "error < 1", "changed rules V4.closed"),
        (("claims", 0, "id"), "V4.old", "new claims V4.closed; dropped claims V4.old"),
        (("claims", 0), None, "new claims V4.closed"),
        (("result",), None, "its file holds no data to judge again"),
        (("result", "loss"), None, "its data lack `loss`, by which the lab judges now"),
        (("result", "limit"), [], "its data cannot be judged again (ValueError: zip"),
    ],
)
def test_what_makes_a_record_one_of_an_earlier_version(whole, path, value, said):
    lab, record = whole
    changed = "; ".join(pages.earlier(lab, edited(record, *path, value=value), "quick"))
    assert said in changed


@pytest.mark.parametrize(
    ("stated", "numbers"),
    [
        (labs.Stated("V0", "a", "b", 0, "mean(a) > 0", "n > 1", "a = 1"), ({"a": [1], "n": 2},)),
        (
            labs.Erratum("V0", "a", "b", "a > 0", "c", "a > 1", "n > 1"),
            ({"a": 1}, {"a": 2, "n": 2}),
        ),
        (labs.Remark("V0", "a", "b", "a > 0", "c", "a > 1"), ({"a": 1}, {"a": 2})),
    ],
)
def test_rules_are_compared_as_records_hold_them(stated, numbers):
    judge = stated.judge
    claim = judge(**numbers[0]) if isinstance(stated, labs.Stated) else judge(*numbers)
    assert pages._rule(stated) == claim.rule
