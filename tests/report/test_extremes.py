"""Numbers, sizes and texts at the edge: a page is made, or a sentence says why not."""

import json
import re

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.errors import ChiaroError
from chiaroscuro.report import report
from report.conftest import make_run

N = 24


def rows(scale=1.0, d=5):
    return scale * np.random.default_rng(0).normal(size=(N, d))


def made(embeddings, folder):
    text = report(embeddings, folder / "page.html").read_text(encoding="utf-8")
    (run,) = json.loads(re.search(r'id="document">(.*?)</script>', text, re.DOTALL)[1])["runs"]
    return run


SCALES = (1e300, 1e-300, 1e38, 5e-324 * 1e5)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["h", "z"])
def test_any_scale_gives_the_page_of_the_same_rows(tmp_path, scale, name):
    run = made(Embeddings(**{name: rows(scale)}, labels=np.arange(N) % 3), tmp_path)
    plain = made(Embeddings(**{name: rows()}, labels=np.arange(N) % 3), tmp_path)
    kept, wanted = run["frames"][0][name], plain["frames"][0][name]
    tolerance = 1e-4 if scale > 1e-310 else 1e-2  # subnormal numbers have few figures
    for measure in ("effective_rank", "uniformity", "shown_knn_accuracy", "participation_ratio"):
        assert kept[measure] == pytest.approx(wanted[measure], rel=tolerance, abs=0)


def test_one_huge_row_among_small_ones(tmp_path):
    h = rows()
    h[3] *= 1e300
    run = made(Embeddings(h=h), tmp_path)
    assert np.isfinite(run["frames"][0]["h"]["effective_rank"])


@pytest.mark.parametrize("scale", SCALES)
def test_factors_and_layers_of_any_scale(tmp_path, scale):
    factors = rows(scale, 2)
    run = made(Embeddings(h=rows(), factors=factors, layers={"input": rows(scale)}), tmp_path)
    assert len(run["factors"]["targets"]) == 2


def test_factors_that_are_not_finite(tmp_path):
    factors = rows(1, 2)
    factors[0, 0], factors[1, 1] = np.nan, np.inf
    assert made(Embeddings(h=rows(), factors=factors), tmp_path)["samples"]["n"] == N


def test_no_dimension_is_no_map(tmp_path):
    run = made(Embeddings(h=np.zeros((N, 0))), tmp_path)
    assert run["samples"] is None
    assert any("0 dimensions" in note for note in run["notes"])
    both = made(Embeddings(h=np.zeros((N, 0)), z=rows()), tmp_path)
    assert list(both["spaces"]) == ["z"]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_rows_are_said(tmp_path, n):
    run = made(Embeddings(h=np.ones((n, 4))), tmp_path)
    assert run["samples"] is None
    assert any(f"{n} " in note for note in run["notes"])


def test_thumbnails_of_no_pixel_are_left_out(tmp_path):
    e = Embeddings(h=rows(), thumbnails=np.zeros((N, 0, 0, 3), np.uint8))
    assert "sheets" not in made(e, tmp_path)["samples"]


def test_half_a_surrogate_pair_is_shown_as_such(tmp_path):
    half = "caf" + chr(0xDCE9)
    e = Embeddings(
        h=rows(), ids=[f"{half}{k}" for k in range(N)], texts=[half] * N,
        labels=np.arange(N) % 2, class_names=[half, "b"], factors=rows(d=1), factor_names=[half],
    )  # fmt: skip
    run = made(e, tmp_path)
    assert run["samples"]["texts"][0] == "caf\ufffd"
    assert run["samples"]["labels"]["names"] == ["caf\ufffd", "b"]


def test_settings_that_are_too_deep_are_a_sentence(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", n=12, epochs=1)
    deep = {}
    for _ in range(5000):
        deep = {"a": deep}
    monkeypatch.setattr(Run, "settings", lambda _: deep)
    with pytest.raises(ChiaroError, match="nested this deeply"):
        report(run, tmp_path / "page.html")


def test_a_history_of_words(tmp_path):
    run = Run.create(tmp_path / "run", {"seed": 0})
    run.append({"step": "x", "loss": "y"})
    run.append({"step": 1, "loss": {}})
    run.append({"step": 1, "epoch": "x", "mean_loss": 1})
    run.append({"step": 1, "epoch": 10**400, "mean_loss": 1})
    run.append({"step": 2, "epoch": 1, "mean_loss": "z", "online_knn": 0.5})
    shown = made(run, tmp_path)["training"]
    assert shown["epochs"] == {"step": [2], "epoch": [1], "online_knn": [0.5]}
