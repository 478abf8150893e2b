"""The pages say what the kept results say, and these can be judged again."""

import dataclasses
import json
from pathlib import Path

import pytest

from chiaroscuro import labs
from chiaroscuro.labs import pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
KEPT = {lab: record for lab, record in pages.results(DOCS / "results").items() if record}


def test_the_pages_are_those_of_the_results():
    assert (DOCS / "claims.md").read_text() == pages.claims_page(DOCS / "results")
    assert (DOCS / "gallery.md").read_text() == pages.gallery_page(DOCS / "results")


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_kept_verdicts_follow_from_kept_numbers(lab):
    record = KEPT[lab]
    assert record["scale"] == "laptop"
    for claim in record["claims"]:
        if "missing" in claim["ours"]:
            assert claim["verdict"] == "not_run"
            continue
        ours = pages._numbers(claim["ours"])
        rule, _, enough = claim["rule"].removesuffix(")").partition(" (to judge at all: ")
        forms = [claim[name] for name in ("printed", "corrected", "expected") if name in claim]
        holds = [labs.satisfied(form["rule"], pages._numbers(form["ours"])) for form in forms]
        assert [form["holds"] for form in forms] == holds
        if "printed" in claim:
            expected = "holds" if holds[0] else claim["kind"] if holds[1] else "fails"
        elif "expected" in claim:
            right = labs.satisfied(rule.partition("; expected fails ")[0], ours)
            expected = "remark" if right and not holds[0] else "fails"
        else:
            expected = labs.judged(claim["rule"], ours)
            if expected == "holds" and claim["kind"] in ("definition", "remark"):
                expected = claim["kind"]
        if enough and not labs.satisfied(enough, ours):
            expected = "inconclusive"
        assert claim["verdict"] == expected, claim["id"]


def test_counts_keep_kinds_apart():
    row = lambda kind, verdict: {"kind": kind, "verdict": verdict}
    rows = [
        *(row("identity", "holds"), row("identity", "holds"), row("empirical", "fails")),
        *(row("empirical", "inconclusive"), row("erratum", "erratum"), row("typo", "typo")),
        *(row("remark", "remark"), row("remark", "fails"), row("definition", "definition")),
    ]
    assert pages.counts(rows) == (
        "2 identities, all verified; 2 empirical claims: 1 fails, 1 inconclusive; 1 erratum; "
        "1 typo; 1 remark of ours; of supposed remarks of ours not confirmed: 1 fails; 1 definition"
    )


def test_kept_numbers_are_judged_again(tmp_path):
    labs.reproduce("invariance", out=tmp_path)
    path = tmp_path / "quick" / "calder2025" / "invariance.json"
    record = json.loads(path.read_text())
    record["claims"][0] |= {"verdict": "fails", "rule": "drift < 0"}
    del record["claims"][1]["ours"]["drift"]
    path.write_text(json.dumps(record))
    said = pages.judge_again(tmp_path)
    assert "quick/invariance: V6.vanilla fails -> holds" in said
    assert "quick/invariance: V6.network needs a run" in said
    again = json.loads(path.read_text())
    assert again["claims"][0]["rule"] == "drift < 1e-12"
    assert again["result"] == record["result"]


def test_a_changed_preset_takes_a_run(tmp_path):
    labs.reproduce("invariance", out=tmp_path)
    path = tmp_path / "quick" / "calder2025" / "invariance.json"
    record = json.loads(path.read_text())
    record["settings"]["n"] += 1
    path.write_text(json.dumps(record))
    assert "quick/invariance: V6.network needs a run" in pages.judge_again(tmp_path)


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_kept_results_are_of_the_laptop_preset_or_say_so(lab):
    settings = dataclasses.asdict(lab.settings("laptop"))
    same = json.loads(json.dumps(settings)) == KEPT[lab]["settings"]
    assert (pages.EARLIER in pages._lab(lab, KEPT[lab])) == (not same)
    for name in KEPT[lab]["figures"]:
        path = DOCS / "results" / "laptop" / lab.paper / name
        if path.suffix != ".svg":
            assert 1000 < path.stat().st_size < 150_000


def test_labs_that_have_not_been_run_are_named():
    text = (DOCS / "claims.md").read_text()
    for lab in set(labs.all_labs()) - set(KEPT):
        assert f"Not run at this scale yet. `chiaro reproduce {lab.name} --scale laptop`" in text
