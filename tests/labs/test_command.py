"""`chiaro reproduce`: what it prints where, and how it ends."""

import json
import subprocess
import sys

import pytest

from chiaroscuro import cli, labs
from chiaroscuro.labs.claim import Claim


def run(capsys, *argv):
    status = cli.main(["reproduce", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_list_needs_no_torch():
    code = (
        "import sys; from chiaroscuro.cli import main; status = main(['reproduce', '--list'])\n"
        "print(status, sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("0 []")
    for lab in labs.all_labs():
        assert lab.name in done.stdout


def test_the_list_as_json(capsys):
    status, out, err = run(capsys, "--list", "--json", "V4")
    assert (status, err) == (0, "")
    (row,) = json.loads(out)
    assert row["lab"] == "atoms"


@pytest.mark.usefixtures("sketched")
def test_json_is_one_document_and_progress_goes_elsewhere(capsys, tmp_path):
    status, out, err = run(capsys, "V2", "--json", "--out", str(tmp_path))
    assert status == 0
    (record,) = json.loads(out)
    assert set(record) == {"lab", "paper", "scale", "seeds", "seconds", "claims"}
    assert all(claim["id"].startswith("V2") for claim in record["claims"])
    assert "V2.same" in err


@pytest.mark.usefixtures("sketched")
def test_without_a_terminal_there_are_plain_lines(capsys, tmp_path):
    status, out, err = run(capsys, "latent_law", "--out", str(tmp_path), "--seed", "3")
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    assert "\r" not in out
    assert "holds" in out
    assert str(tmp_path) in out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), "--all"),
        (("V4", "--all"), "--all"),
        (("atom",), "did you mean `atoms`"),
        (("V4", "--scale", "huge"), "'huge'"),
        (("V4", "--seed", "x"), "--seed"),
        (("V4", "--seed", "-3"), "-3"),
        (("V4", "--jobs", "0"), "received 0"),
        (("V2", "V4", "--seed", "-3", "--jobs", "2"), "-3"),
    ],
)
def test_a_wrong_call_is_one_sentence(capsys, tmp_path, monkeypatch, argv, sentence):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.usefixtures("sketched")
def test_a_claim_that_fails_is_failed_work(capsys, tmp_path, monkeypatch):
    module = labs.chosen(["V2"])[0].module
    bad = Claim("V2.same", "planted", "", 0, {"error": 1.0}, "error < 1e-10", "fails")
    monkeypatch.setattr(module, "claims", lambda result: [bad])
    status, out, _ = run(capsys, "V2", "--out", str(tmp_path))
    assert status == 1
    assert "1 fails" in out


def test_labs_at_once_find_what_they_find_one_by_one(tmp_path):
    one, two = (
        {
            (claim.id, claim.verdict, repr(claim.ours))
            for report in labs.reproduce(["V2", "V4"], out=out, jobs=jobs)
            for claim in report.claims
        }
        for jobs, out in ((1, None), (2, tmp_path))
    )
    assert one == two
    kinds = {"json", "data.json", "png", "svg"}
    names = {f"{name}.{kind}" for name in ("latent_law", "atoms") for kind in kinds}
    assert {path.name for path in tmp_path.rglob("*.*")} >= names


def test_a_long_piece_is_told_when_it_is_done():
    import io

    stream = io.StringIO()
    show = labs.Show(stream)
    show.piece("seed 0", 0.1)
    show.piece("seed 1", 62.5)
    assert stream.getvalue() == "  seed 1 done in 62.5 s\n"


def test_numbers_that_json_spells_as_words_are_shown():
    from chiaroscuro.labs.show import numbers

    assert numbers({"gain": [0.5, "nan", 0.25], "loss": ["inf", 1.0]}) == (
        "gain 0.25 .. 0.5, 1 nan, loss 1 .. inf"
    )
    assert numbers({"gain": [float("nan")]}) == "gain nan"


def test_on_a_terminal_verdicts_have_colours():
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    lab = labs.all_labs()[0]
    show = labs.Show(stream)
    show.begin(lab, "quick")
    show.end([Claim("V0", "", "", 0, {"error": 1.0}, "error < 1", "fails")], 1.0)
    text = stream.getvalue()
    assert "running" in text
    assert "\x1b[31mfails" in text
