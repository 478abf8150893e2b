"""What the labs of rusak2022 are built on: closed forms, exact gradients, readings of spectra."""

import math

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.labs.rusak2022 import gradient, layers, linear, losses


def test_the_uniformity_of_table_1():
    """The paper prints 7.69 and 9.26; and by summing, without the closed forms."""
    closed = losses.closed_forms(10, 10_000)
    assert closed["box"] == pytest.approx(7.7003, abs=1e-4)
    assert closed["sphere"] == pytest.approx(9.26, abs=0.005)
    t = (np.arange(2000) + 0.5) / 2000
    inside = np.log(np.exp(-((t[:, None] - t) ** 2)).mean(axis=1)).mean()
    assert closed["box"] == pytest.approx(math.log(10_000) + 10 * inside, abs=1e-5)
    w = (np.arange(20_000) + 0.5) / 10_000 - 1
    weight = (1 - w**2) ** 3.5  # of one coordinate of a point on S^9
    mean = (np.exp(w) * weight).sum() / weight.sum()
    assert closed["sphere"] == pytest.approx(math.log(10_000) + math.log(mean), abs=1e-6)


def test_the_alignment_of_table_1_needs_one_content_dimension():
    found = losses.alignment(losses.Settings())
    assert found["informative"] > 0.3
    assert found["one_content"] < 1e-3
    assert losses.mean_cosine(9, 0.9) == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 3.0])
def test_the_gradient_of_equation_4_is_its_formula(scale):
    settings = gradient.Settings(n=30)
    x, x2 = gradient.pairs(settings, 0.2, 0, cs.data.Linear(8))
    W = scale * torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gradient.apart(gradient.formula(x, x2, W), gradient.slope(x, x2, W)) < 1e-10
    ours = cs.InfoNCE(cs.Gaussian(tau=1.0), cs.SameView(), anchors="first")
    z, z2 = x @ W.T, x2 @ W.T
    assert float(gradient.equation_4(z, z2)) / 30 == pytest.approx(float(ours(z, z2)), rel=1e-10)


def test_reading_a_gap():
    assert gradient.gap(np.array([1.0, 9.0, 10.0, 1.1])) == 2
    assert linear.counted([10.0, 9.0, 1.0, 0.9]) == (2, 9.0)
    # a ratio of two values near zero is no gap
    assert linear.counted([10.0, 9.0, 8.0, 1.0, 0.9, 1e-3, 1e-9])[0] == 3


def test_every_layer_is_read_after_its_activation():
    settings = layers.Settings(depth=3, width=6, d=4, content=2)
    f = layers.encoder(settings, 0)
    x = torch.randn(5, 4)
    found = layers.layers(f, x)
    assert list(found) == ["0", "1", "2", "3"]
    assert [h.shape[1] for h in found.values()] == [4, 6, 6, 4]
    np.testing.assert_allclose(found["3"], f(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    hidden = torch.nn.functional.leaky_relu(f.layers[0](x)).detach().numpy()
    np.testing.assert_allclose(found["1"], hidden, rtol=1e-6)


def test_leaving_out_the_norm_alone_is_a_control_of_both():
    """What temperatures add is held against leaving out the norm alone, at the better level."""

    def verdicts(both, norm_alone, low=0.1):
        style = dict.fromkeys(layers.CASES, 0.1)
        style |= {"sphere, no norm, tau": both, "sphere, no norm": norm_alone}
        style["sphere, no norm, low"] = low
        noise = (0.0, 0.01, -0.01, 0.005, -0.005, 0.0)
        result = {"steps": 2000, "tau": 0.2, "fresh": [False] + [True] * 5}
        for case, end in style.items():
            result[case] = [
                {"content": [1.0, 0.9, 0.8], "style": [1.0, 0.9, end + x]} for x in noise
            ]
        return {one.id: one for one in layers.claims(result)}

    found = verdicts(0.7, 0.7)
    assert found["C4.sphere_tau"].verdict == "holds"
    assert found["C4.no_norm"].verdict == "remark"
    assert len(found["C4.sphere_tau"].ours["gain_beyond_no_norm"]) == 5  # the fresh seeds
    assert len(found["C4.box"].ours["lost_style"]) == 6
    assert verdicts(0.7, 0.2)["C4.no_norm"].verdict == "fails"
    assert verdicts(0.7, 0.2, low=0.7)["C4.no_norm"].verdict == "remark"  # at the other level


def test_content_leads_at_the_start_by_the_variances():
    """(2 sigma_z^2 - sigma_c^2) / (2 sigma_z^2 - sigma_s^2), divided by tau_c / tau_s."""
    settings = linear.Settings()
    expected = (1 / 6) / (1 / 6 - settings.std**2)
    found = linear.leads(settings, 0)
    assert found["one"] == pytest.approx(expected, rel=0.1)
    assert found["split"] == pytest.approx(5 * found["one"], rel=1e-3)
    assert found["reversed"] == pytest.approx(found["one"] / 5, rel=1e-3)
