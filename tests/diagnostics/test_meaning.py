"""Will these data help, and are augmentations actions: the measures as a diagnosis takes them."""

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.diagnostics import Context, diagnose
from chiaroscuro.diagnostics.geometry.actions import action_measures
from chiaroscuro.errors import InputError

MEANINGS = np.array([0, 1, 2, 3] * 2)


def task(draw, n=6000):
    """Symbols u and u + 4 mean the same; the label is their meaning plus the context."""
    u, c = draw.integers(0, 8, n), draw.integers(0, 4, n)
    return {"symbols": u, "contexts": c, "labels": (MEANINGS[u] + c) % 4}


def contexts_by(key, u, draw):
    """A context that is mostly the key of its symbol."""
    noise = draw.integers(0, 8, len(u))
    return np.where(draw.random(len(u)) < 0.7, key[u], noise)


def test_data_that_tell_meanings_apart_are_aligned_and_others_are_not():
    draw = np.random.default_rng(0)
    h = draw.normal(size=(200, 8))
    u = draw.integers(0, 8, 4000)
    score = {}
    for name, key in {"meaning": MEANINGS, "spelling": np.arange(8)}.items():
        pairs = {"pair_symbols": u, "pair_contexts": contexts_by(key, u, draw)}
        found = diagnose(h, Context(task=task(draw) | pairs))
        assert (found.measures["symbols"], found.measures["meanings"]) == (8, 4)
        assert abs(found.controls["data_task_alignment"].mean) < 0.5
        score[name] = found.measures["data_task_alignment"]
    assert score["meaning"] > 0.9
    assert score["spelling"] < 0.2


def test_a_task_is_read_from_a_file(tmp_path):
    given = task(np.random.default_rng(1))
    np.savez(tmp_path / "task.npz", **given, other=np.ones(3))
    h = np.random.default_rng(2).normal(size=(100, 4))
    found = cs.diagnose(h, task=str(tmp_path / "task.npz"))
    assert found.measures["meanings"] == 4


def test_a_wrong_task_is_refused_in_a_sentence(tmp_path):
    h = np.eye(80, 4)
    with pytest.raises(InputError, match="lacks labels"):
        cs.diagnose(h, task={"symbols": [0, 1], "contexts": [0, 0]})
    with pytest.raises(InputError, match="no task"):
        cs.diagnose(h, task=str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("symbols")
    with pytest.raises(InputError, match=r"is not an `\.npz`"):
        cs.diagnose(h, task=str(tmp_path / "text.npz"))
    np.savez(tmp_path / "objects.npz", symbols=np.array([{}], dtype=object), contexts=1, labels=1)
    with pytest.raises(InputError, match="could run code; it is refused"):
        cs.diagnose(h, task=str(tmp_path / "objects.npz"))


def test_a_planted_rotation_is_found_to_be_one():
    draw = np.random.default_rng(0)
    h1 = draw.normal(size=(600, 6)) * [5, 4, 1, 1, 1, 1]
    records = np.zeros(600, dtype=[("angle", float), ("nothing", float)])
    records["angle"], records["nothing"] = draw.normal(size=(2, 600))
    c, s = np.cos(records["angle"]), np.sin(records["angle"])
    h1 -= h1.mean(axis=0)
    h2 = h1.copy()
    h2[:, 0], h2[:, 1] = c * h1[:, 0] - s * h1[:, 1], s * h1[:, 0] + c * h1[:, 1]
    found = action_measures(cs.Embeddings(h1=h1, h2=h2), records)
    assert found["generator_error_angle"] < 1e-6
    assert found["generator_turns_angle"] > 1 - 1e-6
    assert found["generator_error_nothing"] > 0.9


def test_the_kernel_of_a_model_is_held_against_its_classes():
    torch.manual_seed(0)
    y = np.repeat([0, 1, 2], 40)
    x = torch.randn(3, 5)[torch.from_numpy(y)] + 0.1 * torch.randn(120, 5)
    order = np.random.default_rng(0).permutation(120)
    x, y = x[order], y[order]
    model = torch.nn.Sequential(torch.nn.Linear(5, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    with torch.no_grad():
        h = model(x).numpy()
    for labels in (y, None):
        given = {"h": h} | ({} if labels is None else {"labels": labels})
        found = diagnose(given, Context(model=model, inputs=x)).measures
        assert found["kernel_within"] > found["kernel_between"]
        assert 0 < found["kernel_alignment"] <= 1


def test_the_kernel_of_a_model_that_is_too_large_is_left_out(monkeypatch):
    from chiaroscuro.diagnostics.assembly import further

    x, y = torch.randn(100, 5), np.arange(100) % 2
    model = torch.nn.Linear(5, 4)
    context = Context(model=model, inputs=x)
    given = {"h": model(x).detach().numpy(), "labels": y}
    assert "kernel_alignment" in diagnose(given, context).measures
    monkeypatch.setattr(further, "KERNEL_BYTES", 17 * 4 * 4 * 15)  # fifteen samples
    assert "kernel_alignment" not in diagnose(given, context).measures
