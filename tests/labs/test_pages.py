"""The pages say what the kept results say, and these can be judged again."""

import ast
import dataclasses
import json
import re
import tomllib
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
    assert (DOCS / "verdicts.md").read_text() == pages.verdicts_page(DOCS / "results")


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_kept_verdicts_follow_from_kept_numbers(lab):
    record = KEPT[lab]
    assert record["scale"] == "laptop"
    for claim in record["claims"]:
        if "missing" in claim["ours"]:
            assert claim["verdict"] == "not_run"
            continue
        ours = pages._numbers(claim["ours"])
        enough = claim["rule"].removesuffix(")").partition(" (to judge at all: ")[2]
        forms = [claim[name] for name in ("printed", "corrected", "expected") if name in claim]
        said = [labs.judged(form["rule"], pages._numbers(form["ours"])) for form in forms]
        assert [form["holds"] for form in forms] == [verdict == "holds" for verdict in said]
        if "expected" in claim:
            said.append(labs.judged(claim["rule"].partition("; expected fails ")[0], ours))
        if forms:
            first, second = said
            expected = claim["kind"] if (first, second) == ("fails", "holds") else "inconclusive"
            if first == "holds" or second == "fails":
                expected = "holds" if first == "holds" and "printed" in claim else "fails"
        else:
            expected = labs.judged(claim["rule"], ours)
            if expected == "holds" and claim["kind"] in ("definition", "remark"):
                expected = claim["kind"]
        if enough and not labs.satisfied(enough, ours):
            expected = "inconclusive"
        assert claim["verdict"] == expected, claim["id"]


def test_counts_keep_kinds_apart():
    def row(kind, verdict, rule="error < 1e-10", where="Fig. 1", paper="falls"):
        return {"kind": kind, "verdict": verdict, "rule": rule, "where": where, "paper": paper}

    rows = [
        *(row("identity", "holds"), row("identity", "holds", "error < 1e-12 and control > 0.1")),
        *(row("identity", "holds", "slope > 0.9 and slope < 1.1"), row("empirical", "fails")),
        *(row("identity", "holds", "a < b"), row("identity", "fails", "error < 1e-6")),
        *(row("empirical", "inconclusive"), row("erratum", "erratum"), row("typo", "typo")),
        *(
            row("empirical", "holds", where="Sec. 3 (ours)"),
            row("empirical", "holds", paper="not tried"),
        ),
        row("empirical", "fails", where="Prop. 2, beyond its linear model"),
        *(row("remark", "remark"), row("remark", "fails"), row("definition", "definition")),
    ]
    assert pages.counts(rows) == (
        "2 identities to 1e-10, all verified; 3 other checks of mathematics, 1 not verified; "
        "2 empirical claims of the papers: 1 fails, 1 inconclusive; "
        "3 empirical claims of ours: 2 hold, 1 fails; 1 erratum; 1 typo; 1 remark of ours; "
        "1 remark of ours not confirmed (1 fails); 1 definition"
    )


def test_the_changelog_lists_every_verdict_that_changed():
    changelog = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\b[VGSCE]\d+\.\w+", changelog.partition("### Numbers that moved")[2]))
    assert {row[0] for row in pages.moved(DOCS / "results")} <= listed


def test_every_verdict_that_changed_has_a_reason():
    rows = pages.moved(DOCS / "results")
    assert len(rows) > 100
    assert not [name for name, first, _, reason in rows if first and not reason]
    moved = {name for name, *_ in rows}
    groups = tomllib.loads((DOCS / "results" / "reasons.toml").read_text())["group"]
    reasons = [name for one in groups for name in one["claims"]]
    assert len(reasons) == len(set(reasons))
    first = json.loads((DOCS / "results" / "first.json").read_text())
    known = set(first) | {row["id"] for record in KEPT.values() for row in record["claims"]}
    assert set(reasons) <= known
    assert moved <= known


def test_first_and_present_verdicts_stand_side_by_side(tmp_path):
    labs.reproduce("invariance", scale="quick", out=tmp_path)
    (tmp_path / "quick").rename(tmp_path / "laptop")
    row = lambda verdict: {"verdict": verdict, "ours": "drift 1", "rule": "drift > 2"}
    first = {"V6.vanilla": row("holds"), "V6.network": row("fails"), "V6.old": row("holds")}
    (tmp_path / "first.json").write_text(json.dumps(first))
    (tmp_path / "reasons.toml").write_text('[[group]]\nreason = "seeds"\nclaims = ["V6.network"]\n')
    rows = {name: rest for name, *rest in pages.moved(tmp_path)}
    assert set(rows) == {"V6.network", "V6.condition", "V6.old"}
    then, now, reason = rows["V6.network"]
    assert then == "**fails**: drift 1 (drift > 2)"
    assert "mean(drift) > 0.02" in now
    assert reason == "seeds"
    assert rows["V6.condition"][0] == ""
    assert rows["V6.old"][1:] == ["", ""]


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_headers_say_what_the_results_say(lab):
    header = ast.get_docstring(ast.parse(Path(lab.module.__file__).read_text()))
    verdicts = {row["id"]: row["verdict"] for row in KEPT[lab]["claims"]}
    pattern = r"\b([A-Z]\d+\.\w+)`? (?:is )?(holds|fails|inconclusive)\b"
    for name, verdict in re.findall(pattern, " ".join(header.split())):
        assert verdicts.get(name, verdict) == verdict, name


def test_one_training_is_said_to_be_one():
    row = lambda n: {"rule": "mean(gain) > 0 and n == 1", "ours": {"gain": [0.1] * n, "n": 1}}
    many = pages._seeds({"seeds": [3, 4, 5], "claims": [row(3)]})
    one = pages._seeds({"seeds": [3], "claims": [row(10), {"rule": "n == 1", "ours": {"n": 1}}]})
    assert many == "seeds 3 to 5"
    assert "one training" in one
    assert "10 parts" in one


def test_kept_numbers_are_judged_again(tmp_path):
    labs.reproduce("invariance", out=tmp_path)
    path = tmp_path / "quick" / "calder2025" / "invariance.json"
    record = json.loads(path.read_text())
    record["claims"][0] |= {"verdict": "fails", "rule": "drift < 0"}
    record["claims"][1] |= {
        "verdict": "holds",
        "rule": "mean(moved) > 1",
        "ours": {"moved": [1, 2]},
    }
    path.write_text(json.dumps(record))
    said = pages.judge_again(tmp_path)
    assert "quick/invariance: V6.vanilla fails -> holds" in said
    assert "quick/invariance: V6.network needs a run" in said
    again = json.loads(path.read_text())
    assert "quick/invariance: V6.network holds -> inconclusive" in said
    assert again["claims"][0]["rule"] == "drift < 1e-12"
    assert again["claims"][1]["rule"] == "mean(moved) > 1"
    assert again["claims"][1]["ours"]["moved_half"] == 6.3531
    assert not pages.judge_again(tmp_path, ["strength"])
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
