"""Results in a notebook: small tables without scripts, and axes that take part in a figure."""

import re

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import Dataset
from chiaroscuro.diagnostics import diagnose, evaluate
from chiaroscuro.engine import train

pyplot = pytest.importorskip("matplotlib.pyplot")
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    h = rng.normal(size=(60, 5))
    embeddings = Embeddings(
        h=h, labels=np.arange(60) % 3, class_names=["<a>", "b", "c"], split=np.repeat([0, 1], 30)
    )
    run = Run.create(tmp_path_factory.mktemp("run") / "r", {"seed": 0, "objective": "<InfoNCE>"})
    run.append({"step": 1, "loss": 2.0})
    run.append({"step": 2, "loss": 1.5})
    run.append({"step": 2, "epoch": 0, "mean_loss": 1.75})
    images = rng.integers(0, 256, size=(7, 8, 8, 3), dtype=np.uint8)
    few = {"epochs": 2, "batch": 20, "network": {"encoder": "MLP(d_in=5, d=3)"}}
    return {
        "in memory": train(few, data=h.astype(np.float32), view="Jitter(noise=0.1)"),
        "embeddings": embeddings,
        "run": run,
        "evaluation": evaluate(embeddings, probes=["ridge"]),
        "diagnosis": diagnose(embeddings),
        "images": Dataset({"images": images, "labels": np.arange(7)}, name="<img>"),
        "floats": Dataset({"images": rng.normal(size=(3, 8, 8, 13)).astype(np.float32)}),
        "numbers": Dataset({"x": h, "labels": np.arange(60) % 3}),
        "texts": Dataset({"texts": np.array(["a", "b"], dtype=object)}),
    }


NAMES = [
    "embeddings",
    "run",
    "in memory",
    "evaluation",
    "diagnosis",
    "images",
    "floats",
    "numbers",
    "texts",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_html_is_small_escaped_and_has_no_scripts(results, name):
    html = results[name]._repr_html_()
    assert 50 < len(html) < 20_000
    assert "<script" not in html
    assert not re.search(r"background|color:(?!inherit)", html)
    assert html.count("<td") == html.count("</td>") > 0
    for planted in ("<a>", "<InfoNCE>", "<img>"):
        assert planted not in html


@pytest.mark.parametrize("name", NAMES)
def test_a_plot_draws_into_the_axes_it_is_given(results, name):
    figure, axes = pyplot.subplots()
    assert results[name].plot(ax=axes) is axes
    assert axes.has_data() or axes.images
    made = results[name].plot()
    assert made is not axes
    assert made.figure is not figure
    pyplot.close("all")


def test_the_run_shows_its_losses(results):
    axes = results["run"].plot()
    assert [line.get_ydata().tolist() for line in axes.lines] == [[2.0, 1.5], [1.75]]
    assert "1.75" in results["run"]._repr_html_()
    pyplot.close("all")


def test_an_evaluation_is_the_dictionary_of_the_command(results):
    found = results["evaluation"]
    assert set(found) == {"protocol", "results"}
    assert str(found).startswith("fitted on 30 rows, tested on 30 held-out rows")
