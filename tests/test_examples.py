"""The examples run, and do what they say."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"


def example(name):
    return runpy.run_path(str(FOLDER / name))["main"]


def test_our_loss_in_a_loop_of_ones_own(capsys):
    means = example("own_loop.py")(epochs=3)
    assert means[-1] < means[0] - 0.1
    assert "epoch 3" in capsys.readouterr().out


def test_everything_of_ones_own(tmp_path, capsys):
    done = example("own_everything.py")(str(tmp_path), epochs=4)
    assert done["page"].read_text().startswith("<!doctype html>")
    assert done["embeddings"].h.shape == (256, 16)
    # a bar that lies or stands is learnt without labels
    assert done["measures"]["knn_accuracy"] > 0.9
    assert "page:" in capsys.readouterr().out


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_every_example_says_how_to_run_it(file):
    assert f"python examples/{file.name}" in file.read_text()
