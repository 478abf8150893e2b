"""The pages say what the kept results say, and these can be judged again."""

import ast
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
CLAIMS = pages.by_scale(DOCS / "results")


def test_the_pages_are_those_of_the_results():
    assert (DOCS / "claims.md").read_text() == pages.claims_page(DOCS / "results")
    assert (DOCS / "gallery.md").read_text() == pages.gallery_page(DOCS / "results")
    assert (DOCS / "verdicts.md").read_text() == pages.verdicts_page(DOCS / "results")


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


def _kept(folder, **verdicts):
    """Leave a record of the lab `atoms` at each scale, V4.threshold with this verdict; its rows."""
    (lab,) = labs.chosen(["V4.threshold"])
    record = KEPT[lab]
    others = [row for row in record["claims"] if row["id"] != "V4.threshold"]
    (linear,) = (row for row in record["claims"] if row["id"] == "V4.threshold")
    for scale, verdict in verdicts.items():
        rows = [*others, {**linear, "verdict": verdict}]
        path = folder / scale / lab.paper / f"{lab.name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**record, "scale": scale, "claims": rows}))
    return {row["id"]: row for row in rows}


def _head(folder):
    """The page of claims before the explanations, and the line of the paper calder2025."""
    head, _, rest = pages.claims_page(folder).partition("An *identity*")
    return head, rest.partition("## calder2025\n\n")[2].partition("\n")[0]


def test_a_claim_counts_by_the_longest_run_that_decides_it(tmp_path):
    rows = _kept(tmp_path, laptop="inconclusive", long="holds", paper="inconclusive")
    assert list(pages.by_scale(tmp_path)["V4.threshold"]) == ["laptop", "long", "paper"]
    counted = pages.counts(
        {**rows, "V4.threshold": {**rows["V4.threshold"], "verdict": "holds"}}.values()
    )
    head, paper = _head(tmp_path)
    assert f"**{counted}.**" in head
    assert paper.endswith(f": {counted}.")
    assert "1 of them by such a run only: V4.threshold." in head
    assert "different verdicts, the longer run counts: none." in head
    assert (
        "the shorter run counts: V4.threshold (inconclusive at `laptop`, holds at `long`, "
        "inconclusive at `paper`)." in head
    )
    assert "- Inconclusive" not in head


def test_runs_that_contradict_each_other_are_named(tmp_path):
    rows = _kept(tmp_path, laptop="holds", long="fails")
    head, paper = _head(tmp_path)
    assert f"**{pages.counts(rows.values())}.**" in head
    assert paper.endswith(f": {pages.counts(rows.values())}.")
    assert "by such a run only." in head
    assert "longer run counts: V4.threshold (holds at `laptop`, **fails** at `long`)." in head
    assert "the shorter run counts: none." in head
    assert "- Fail: of the papers V4.threshold (at `long`)." in head


def test_a_claim_that_no_run_decides_counts_by_the_laptop(tmp_path):
    _kept(tmp_path, laptop="inconclusive", long="not_run")
    head, _ = _head(tmp_path)
    assert "- Inconclusive: of the papers V4.threshold." in head
    assert "- Not run" not in head
    assert "the shorter run counts: none." in head


def test_each_claim_is_counted_once():
    ran = {row["id"] for record in KEPT.values() for row in record["claims"]}
    assert {name for lab in KEPT for name in lab.claims} & ran <= set(CLAIMS)
    head, _ = _head(DOCS / "results")
    bold = head.partition("**")[2].partition(".**")[0]
    assert sum(int(n) for n in re.findall(r"(?:^|; )(\d+) ", bold)) == len(CLAIMS)


def test_a_rule_that_changed_is_shown_whatever_the_verdict(tmp_path):
    first = {name: {**row, "ours": ""} for name, row in _kept(tmp_path, laptop="holds").items()}
    path = tmp_path / "laptop" / "calder2025" / "atoms.json"
    record = json.loads(path.read_text())
    for row in record["claims"]:
        if row["id"] == "V4.threshold":
            row["rule"] = "mean(error) < 1 (to judge at all: n >= 3)"
        elif row["id"] == "V4.limit":
            row["rule"] = "error < 1e-11"
    path.write_text(json.dumps(record))
    first["V4.threshold"]["rule"] = "error < 1 (to judge at all: n >= 3)"
    first["V4.limit"]["rule"] = "error < 1"
    (tmp_path / "first.json").write_text(json.dumps(first))
    (tmp_path / "reasons.toml").write_text('[[group]]\nreason = "sharper"\nclaims = ["V4.limit"]')
    assert not pages.moved(tmp_path)
    changed = {name: rest for name, *rest in pages.amended(tmp_path)}
    assert set(changed) == {"V4.threshold", "V4.limit"}
    assert changed["V4.limit"] == ["holds", "error < 1", "error < 1e-11", "sharper"]
    assert changed["V4.threshold"][3] == pages.MEAN
    text = pages.verdicts_page(tmp_path)
    assert "| V4.limit | holds | error < 1 | error < 1e-11 | sharper |" in text
    assert "2 claims have their first verdict by a rule that was changed since; 1 of" in text


def test_an_erratum_and_a_remark_have_the_same_forms():
    erratum = "printed fails a < 1; corrected obeys b < 1 and c > 0 (to judge at all: n >= 3)"
    remark = "b < 1 and c > 0; expected fails a < 1 (to judge at all: n >= 3)"
    assert pages._forms(erratum) == pages._forms(remark)
    assert pages._forms(erratum) != pages._forms(remark.replace("a < 1", "a < 2"))
    assert pages._forms("mean(a) < 1 (to judge at all: n >= 3)") == (
        *("mean(a) < 1", "", "to judge at all: n >= 3)"),
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
    (lab,) = labs.chosen(["invariance"])
    assert set(rows) == set(lab.claims) - {"V6.vanilla"} | {"V6.old"}
    then, now, reason = rows["V6.network"]
    assert then == "**fails**: drift 1 (drift > 2)"
    assert "mean(drift) > 0.02" in now
    assert reason == "seeds"
    assert rows["V6.condition"][0] == ""
    assert rows["V6.old"][1:] == ["", ""]


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_headers_say_what_the_results_say(lab):
    header = ast.get_docstring(ast.parse(Path(lab.module.__file__).read_text()))
    pattern = r"\b([A-Z]\d+\.\w+)`? (?:is )?(holds|fails|inconclusive)\b"
    for name, verdict in re.findall(pattern, " ".join(header.split())):
        if name in CLAIMS:
            assert verdict in {row["verdict"] for row in CLAIMS[name].values()}, name


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
def test_figures_of_the_laptop_scale_are_there_and_small(lab):
    for name in KEPT[lab]["figures"]:
        path = DOCS / "results" / "laptop" / lab.paper / name
        if path.suffix != ".svg":
            assert 1000 < path.stat().st_size < 150_000


def test_labs_that_have_not_been_run_are_named():
    text = (DOCS / "claims.md").read_text()
    for lab in set(labs.all_labs()) - set(KEPT):
        assert f"Not run at this scale yet. `chiaro reproduce {lab.name} --scale laptop`" in text
