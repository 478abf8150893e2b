"""The pages say what the kept results say, and these can be judged again."""

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
        rule, _, enough = claim["rule"].removesuffix(")").partition(" (to judge at all: ")
        if "printed" in claim:
            forms = [claim["printed"], claim["corrected"]]
            holds = [labs.satisfied(form["rule"], _numbers(form["ours"])) for form in forms]
            assert [form["holds"] for form in forms] == holds
            expected = "holds" if holds[0] else "erratum" if holds[1] else "fails"
        else:
            expected = "holds" if labs.satisfied(rule, _numbers(claim["ours"])) else "fails"
        if enough and not labs.satisfied(enough, _numbers(claim["ours"])):
            expected = "inconclusive"
        assert claim["verdict"] == expected, claim["id"]


def _numbers(ours):
    """What JSON has no number for is kept as a word, `nan`; other words (a data set) stay words."""
    odd = ("nan", "inf", "-inf")
    return {name: float(x) if x in odd else x for name, x in ours.items()}


@pytest.mark.parametrize("lab", KEPT, ids=lambda lab: lab.name)
def test_kept_results_are_of_the_laptop_preset(lab):
    import dataclasses
    import json

    settings = dataclasses.asdict(lab.settings("laptop"))
    assert json.loads(json.dumps(settings)) == KEPT[lab]["settings"]
    for name in KEPT[lab]["figures"]:
        path = DOCS / "results" / "laptop" / lab.paper / name
        if path.suffix != ".svg":
            assert 1000 < path.stat().st_size < 150_000


def test_every_lab_has_been_run():
    assert set(KEPT) == set(labs.found())
