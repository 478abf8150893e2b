"""The file: one, closed to everything, small; from the command line, and without torch."""

import base64
import hashlib
import inspect
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import chiaroscuro
from chiaroscuro.artifacts import Embeddings
from chiaroscuro.cli import main
from chiaroscuro.errors import InputError
from chiaroscuro.report.page import page, report, script
from report.conftest import make_run

FRONT = resources.files("chiaroscuro.report") / "front"
SOURCES = {f.name: f.read_text() for f in FRONT.iterdir() if f.name.endswith(".js")}
EMPTY = {"kind": "report", "title": "t", "runs": []}


def test_the_policy_allows_this_script_and_this_style_alone():
    text = page(EMPTY)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}(?: type=\"module\")?>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy.split("; ")
    for part in ("default-src 'none'", "connect-src 'none'", "img-src data:", "base-uri 'none'"):
        assert part in policy.split("; ")
    assert "unsafe" not in policy


def test_there_is_no_inline_handler_and_no_address_to_load():
    text = page(EMPTY)
    shell = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"\son\w+\s*=", shell)
    assert not re.search(r"(?:src|href)=", shell)


def test_the_script_is_small_and_never_makes_code_of_text():
    assert len(script().encode()) <= 250_000
    for name, source in SOURCES.items():
        for word in ("eval(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"):
            assert word not in source, f"{name}: {word}"
        assert "new Function" not in source, name


def test_every_module_is_in_the_script_and_short():
    for name, source in SOURCES.items():
        assert f"const ${name.removesuffix('.js')} = (() =>" in script()
        assert len(source.splitlines()) < 450, name


def test_links_to_papers_are_those_of_the_bibliography():
    from chiaroscuro.references import bibliography

    entries = bibliography()
    linked = re.findall(r'^  (\w+): \["[^"]+", (?:"([^"]+)"|null)\],$', SOURCES["papers.js"], re.M)
    assert len(linked) >= 20
    for key, address in linked:
        assert address.rsplit("/abs/")[-1].rsplit("doi.org/")[-1] in entries[key], key
    used = set(re.findall(r'"([a-z]+\d{4}[a-z]*)"', "".join(SOURCES.values())))
    assert used <= {key for key, _ in linked}


def test_data_cannot_end_their_element():
    hostile = "</script><script>alert(1)</script><!--"
    text = page({**EMPTY, "title": hostile, "note": hostile})
    assert text.count("<script") == 2
    assert text.count("</script") == 2
    assert "<title>&lt;/script&gt;" in text
    (data,) = re.findall(r'id="document">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["note"] == hostile


def test_report_is_a_function_also_after_its_package_was_imported(tmp_path):
    from chiaroscuro.report import report as function

    embeddings = Embeddings(h=np.eye(6))
    one = chiaroscuro.report(embeddings, tmp_path / "one.html")
    two = function(embeddings, tmp_path / "deep" / "two.html")
    assert one.read_text() == two.read_text()
    assert inspect.isfunction(chiaroscuro.report)
    assert list(inspect.signature(chiaroscuro.report).parameters)[:2] == ["subjects", "path"]


def test_the_same_input_gives_the_same_page(run, tmp_path):
    one, two = (report(run, tmp_path / f"{name}.html", 60) for name in "ab")
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": "page.pdf"}, "ends in `.html`; received `page.pdf`"),
        ({"points": 2}, "at least 3; received 2"),
        ({"maps": ["pacmap"]}, "one of tsne, umap; received pacmap"),
    ],
)
def test_sentences(arguments, sentence, tmp_path):
    given = {"subject": Embeddings(h=np.eye(6)), "path": tmp_path / "page.html", **arguments}
    with pytest.raises(InputError, match=sentence):
        report(**given)


@pytest.mark.parametrize(
    ("protocol", "seen"),
    [({"trained_on": {"test_rows": 7}}, 7), ({"trained_on": "not known"}, None), ("none", None)],
)
def test_a_test_side_that_was_trained_on_is_said(tmp_path, protocol, seen):
    run = make_run(tmp_path / "run", n=12, epochs=1)
    found = {"protocol": protocol, "results": {"encoder": {"knn_20": 0.5}}}
    (run.folder / "evaluation.json").write_text(json.dumps(found))
    text = report([run], tmp_path / "page.html").read_text()
    told = json.loads(re.search(r'id="document">(.*?)</script>', text, re.DOTALL)[1])
    assert told["runs"][0]["evaluation"]["test_rows_seen"] == seen


def test_the_verb(run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(run.folder), "--out", str(out), "--points", "60"]) == 0
    assert capsys.readouterr().out == f"report: {out}\n"
    assert out.stat().st_size < 1_000_000
    np.save(tmp_path / "a.npy", np.eye(5))
    assert main(["report", str(tmp_path / "a.npy")]) == 2
    assert "needs `--out FILE.html` for 1 subject," in capsys.readouterr().err


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Refuse())
from chiaroscuro.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_it_works_without_torch(run, tmp_path):
    out = tmp_path / "page.html"
    words = ["report", str(run.folder), "--out", str(out), "--points", "60"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "neither diagnosed nor evaluated" in done.stderr
    assert done.stderr.count("\n") == 1
    assert out.read_text().startswith("<!doctype html>")


def test_ten_thousand_points_with_thumbnails_and_twenty_epochs_fit_in_12_mb(tmp_path):
    from chiaroscuro.artifacts import Run

    rng = np.random.default_rng(0)
    n = 10_000
    run = Run.create(tmp_path / "large", {"epochs": 19})
    # pictures that compress badly: every pixel its own
    thumbnails = rng.integers(0, 255, size=(n, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(n) % 10
    ids = np.arange(n)
    Embeddings(ids=ids, labels=labels, thumbnails=thumbnails).save(run.embeddings("rows"))
    h = rng.normal(size=(n, 8)).astype(np.float32)
    for epoch in range(20):
        h += 0.1 * np.eye(8, dtype=np.float32)[labels % 8]
        Embeddings(ids=ids, h=h, z=h[:, :4]).save(run.embeddings(f"epoch-{epoch:04d}"))
    path = report(run, tmp_path / "page.html", maps=())
    found = re.search(r'id="document">(.*?)</script>', path.read_text(), re.DOTALL)
    made = json.loads(found[1])["runs"][0]
    assert made["samples"]["n"] == n
    # a t-SNE map, left out for its time, is as large as the principal axes
    more = sum(len(json.dumps(space["maps"]["PCA"])) for space in made["spaces"].values())
    assert path.stat().st_size + more <= 12_000_000
    assert made["spaces"]["h"]["maps"]["PCA"]["points"]["shape"] == [20, n, 2]


def test_factors_are_those_of_the_diagnosis_where_it_has_them(run, tmp_path):
    diagnosis = {"measures": {"r2_size": 0.25, "z_r2_size": 0.125}}
    path = report(run, tmp_path / "page.html", diagnosis=diagnosis)
    found = re.search(r'id="document">(.*?)</script>', path.read_text(), re.DOTALL)
    factors = json.loads(found[1])["runs"][0]["factors"]
    row = factors["shares"][factors["targets"].index("size")]
    assert dict(zip(factors["layers"], row, strict=True)) | {"pixels": 0} == {
        "pixels": 0,
        "h": 0.25,
        "z": 0.125,
    }


def test_every_paper_that_a_finding_cites_has_a_name():
    """A reader sees authors and a year, never the key of a bibliography."""
    from chiaroscuro import diagnostics

    folder = Path(diagnostics.__file__).parent
    cited = {
        key
        for path in folder.rglob("*.py")
        for key in re.findall(r'paper="(\w+)"', path.read_text())
    }
    named = set(re.findall(r"^  (\w+): \[", SOURCES["papers.js"], re.M))
    assert len(cited) > 10
    assert cited - named == set()
