"""All measures of encoder and projector at once: each is that of its own function."""

import json

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro import cli, diagnostics, models
from chiaroscuro.diagnostics import geometry, weights_of
from chiaroscuro.errors import InputError

rng = np.random.default_rng


def two(n=300, d=8, seed=0):
    h = rng(seed).normal(size=(n, d))
    step = np.zeros((n, d))
    step[:, :2] = rng(seed + 1).normal(size=(n, 2))
    omega = np.zeros(n, dtype=[("eps", float, 2)])
    omega["eps"] = step[:, :2]
    return h, h + step, omega


def embedded(h1, h2, g, **more):
    with torch.no_grad():
        z1, z2 = (g(torch.from_numpy(h).float()).numpy() for h in (h1, h2))
    return cs.Embeddings(h=h1, h1=h1, h2=h2, z=z1, z1=z1, z2=z2, **more)


def test_a_linear_projector():
    h1, h2, omega = two()
    torch.manual_seed(0)
    g = models.Projector(d_in=8, d=5, depth=1, last="none").eval()
    W = g.layers[0].weight.detach().numpy()
    np.testing.assert_allclose(weights_of(g, 8), W, rtol=1e-6)
    y, coarse = rng(3).integers(0, 4, 300), rng(4).integers(0, 2, 300)
    e = embedded(h1, h2, g, labels=y, coarse_labels=coarse)
    found = geometry(e, g, omega)
    apart = diagnostics.displacements(h1, h2, e.z1, e.z2)
    seen = diagnostics.augmentations(W, h1, h2)
    assert found["projector_rank"] == 5
    s = np.linalg.svd(W, compute_uv=False)
    p = s / s.sum()
    assert found["projector_effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert found["displacement_unexplained"] == pytest.approx(
        diagnostics.unexplained(W, apart.delta), rel=1e-5
    )
    assert found["views_annihilated"] == pytest.approx(seen.annihilated, rel=1e-5)
    assert found["views_off_ray"] == pytest.approx(seen.off_ray, rel=1e-5)
    assert found["hardest_agreement"] == (y[apart.rows] == y[apart.hardest]).mean()
    assert found["hardest_agreement_coarse"] == (coarse[apart.rows] == coarse[apart.hardest]).mean()
    assert found["span_dimension"] == 2
    assert found["predicted_rank"] == 5
    assert found["movement_ratio"] == diagnostics.movement(h1, h2, omega).ratio
    by_matrix = geometry(e, W, omega)
    assert by_matrix["views_gain"] == pytest.approx(found["views_gain"], rel=1e-5)


def test_standardising_is_part_of_the_weights():
    torch.manual_seed(0)
    g = models.Projector(d_in=4, d=3, depth=1)
    for _ in range(20):
        g(3 * torch.randn(64, 4) + 1)
    W = weights_of(g, 4)
    x = torch.randn(9, 4).double()
    z = g.double().eval()(x).detach().numpy()
    np.testing.assert_allclose((x.numpy() - x.numpy()[:1]) @ W.T, z - z[:1], atol=1e-6)


def test_a_projector_that_bends():
    h1, h2, _ = two()
    torch.manual_seed(0)
    g = models.Projector(d_in=8, d=3, width=6, last="none").eval()
    assert weights_of(g, 8) is None
    found = geometry(embedded(h1, h2, g), g)
    assert "projector_rank" not in found
    assert found["regions_units"] == 6
    assert found["regions_visited"] == diagnostics.regions(g, h1).visited
    v = diagnostics.local_unexplained(g, h1, h2 - h1)
    assert found["views_annihilated"] == pytest.approx(v)


def test_the_distance_to_the_hardest_negative():
    h = np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    found = diagnostics.displacements(h, h, h, h)
    np.testing.assert_allclose(found.distance, [2**0.5, 2**0.5, 2**0.5])
    with pytest.raises(InputError, match="3 rows"):
        found.agreement([0, 1])


def test_off_the_ray():
    """A factor above 0 is invariant, one below is not, and neither lies in the kernel."""
    W, h = np.ones((1, 3)), np.abs(rng(0).normal(size=(20, 3)))
    stretched = diagnostics.augmentations(W, h, 2 * h + 1)
    assert stretched.off_ray == pytest.approx(0)
    assert stretched.cosine == pytest.approx(1)
    assert stretched.annihilated < 0.9
    opposite = diagnostics.augmentations(W, h, -h)
    assert opposite.off_ray == 1
    assert opposite.cosine == pytest.approx(-1)
    a, b = rng(1).normal(size=(2, 9, 4))
    c = np.maximum((a * b).sum(1) / (a * a).sum(1), 0)
    naive = ((b - c[:, None] * a) ** 2).sum() / (b * b).sum()
    assert diagnostics.augmentations(np.eye(4), a, b).off_ray == pytest.approx(naive)


def test_it_needs_two_views():
    with pytest.raises(InputError, match="missing are"):
        geometry(cs.Embeddings(h=np.eye(4)))


def test_more_parameters_than_rows_are_left_out():
    h1, h2, _ = two(100)
    omega = np.zeros(100, dtype=[("noise", float, 8), ("mask", bool, 8)])
    omega["noise"] = rng(0).normal(size=(100, 8))
    found = geometry(embedded(h1, h2, torch.nn.Identity()), None, omega)
    assert not [name for name in found if name.startswith(("span", "movement_by"))]


def test_diagnose_shows_the_geometry_of_a_run(tmp_path, capsys):
    settings = cs.engine.read_settings(
        "geometry",
        [
            "epochs=1",
            "batch=64",
            "schedule.warmup=0",
            "network.encoder='ResNet(9, 0.125, stem=\"strided\")'",
            "network.projector=Projector(d=32, depth=1, last='none')",
            "data.source='digits(renderings=(1, 1), test=0.8)'",
        ],
    )
    run = cs.train(settings, tmp_path / "run")
    assert cli.main(["diagnose", str(run.folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["measures"]
    opened = cs.engine.open_run(run)
    seen, projector = cs.engine.examine(opened), opened.networks.projectors[0]
    ours = geometry(seen.embeddings, projector, seen.second, seen.first)
    assert {"projector_rank", "span_dimension", "hardest_agreement"} <= set(ours)
    for name, value in ours.items():
        assert shown[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def drawn(settings):
    networks = cs.engine.build(settings.network, settings.seed)
    seen = cs.engine.examine(cs.engine.open_run(settings, networks=networks), 10, control=False)
    return seen.first, seen.second


def test_what_made_the_views_is_what_was_drawn(tmp_path):
    changes = ["data.source='digits(renderings=(1, 1), test=0.9)'", "views.fresh=true"]
    settings = cs.engine.read_settings("digits", changes)
    first, second = drawn(settings)
    assert first.dtype.names[:3] == ("x", "y", "angle")
    assert not np.array_equal(first["x"], second["x"])
    settings = cs.engine.read_settings("geometry", changes[:1])
    first, _ = drawn(settings)
    data = cs.data.open_data(settings.data.source)
    rows = np.linspace(0, len(data) - 1, 10).astype(int)
    view = settings.views.objects()[0]
    expected = view.sample((32, 32), view.draws(rows, settings.seed, 0, 0))
    np.testing.assert_array_equal(first["hue"], expected["hue"])
