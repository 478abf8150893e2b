"""The one-hidden-layer network: Props 4.3 and 4.4, Thm 4.5, Cor. 4.6, Remark 4.4 of calder2025."""

import math

import numpy as np
import pytest
import torch

from chiaroscuro import dynamics
from chiaroscuro.errors import InputError
from chiaroscuro.kernels import Cosine
from chiaroscuro.objectives import InfoNCE
from dynamics import slow
from tolerances import close


def rows(n, d, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def clustered(delta, sizes=(12, 6, 3), seed=0):
    """Points within delta of orthogonal centres, as Thm 4.5 has them."""
    centres = torch.diag(torch.tensor([1.0, 1.5, 2.0]).double())
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    noise = rows(len(labels), 3, seed)
    noise = delta * noise / noise.norm(dim=1, keepdim=True).clamp(min=1)
    return centres[labels] + noise, labels, centres


# ---- Prop. 4.3 and 4.4 ----


def test_prop_4_3_three_ways():
    module = dynamics.OneHidden(3, width=7, d=2).double()
    x = rows(5, 3)
    B = module.B.detach()
    expected = slow.one_hidden(B, x, 2, slow.tanh_slope)
    close(dynamics.one_hidden_kernel(B, x, 2), expected, what="the formula")
    close(dynamics.neural_kernel(module, x), expected, what="the network")
    close(slow.kernel(module, x), expected, what="the loop over gradients")


def test_the_network_is_the_formula():
    module = dynamics.OneHidden(3, width=4, d=2, activation=torch.relu, seed=3).double()
    x = rows(6, 3)
    B = module.B.detach()
    for k in range(2):
        units = torch.relu(x @ B[4 * k : 4 * k + 4].T)
        close(module(x)[:, k], units.sum(dim=1) / 2)


def test_prop_4_4_the_error_falls_as_the_root_of_the_width():
    x = rows(6, 4)
    limit = dynamics.limit_kernel(x, 1)
    widths, errors = [100, 1600, 25600], []
    for width in widths:
        gaps = []
        for seed in range(12):
            B = torch.randn(
                width, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
            K = dynamics.one_hidden_kernel(B, x, 1, torch.relu)
            gaps.append(float((K - limit).square().mean().sqrt()))
        errors.append(np.mean(gaps))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4


def test_prop_4_4_needs_weights_without_a_mean():
    x = rows(6, 4)
    B = torch.randn(40000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gap = lambda B: float((dynamics.one_hidden_kernel(B, x, 1, torch.relu) - limit).abs().max())
    limit = dynamics.limit_kernel(x, 1)
    assert gap(B) < 0.1
    assert gap(B + 1) > 0.5
    assert gap(B * torch.tensor([5.0, 1, 1, 1])) > 0.2


def test_the_limit_at_special_angles():
    x = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-2.0, 0.0], [1.0, 1.0], [0.0, 0.0]]).double()
    K = dynamics.limit_kernel(x, 2)
    close(K[:, :, 0, 0].diagonal(), x.square().sum(dim=1) / 2)
    close(K[0, 1], torch.zeros(2, 2))
    close(K[0, 2], torch.zeros(2, 2))
    close(K[0, 3], 2 * (0.5 - 0.125) * torch.eye(2))  # 45 degrees
    close(K[4], torch.zeros(5, 2, 2))
    near = torch.tensor([[1.0, 0.0], [1.0, 1e-9]]).double()
    angle = 0.5 - float(dynamics.limit_kernel(near, 1)[0, 1])
    assert angle == pytest.approx(1e-9 / (2 * math.pi), rel=1e-5)
    assert torch.linalg.eigvalsh(dynamics.limit_kernel(rows(9, 3), 1)[:, :, 0, 0]).min() > -1e-12


# ---- Thm 4.5, Cor. 4.6, Remark 4.4 ----


def gradient(module, x):
    loss = lambda z: InfoNCE(Cosine(0.5))(z[::2][:10], z[1::2][:10])
    return loss, dynamics.gradient(loss, module(x))


def test_thm_4_5_the_prediction_is_off_by_the_order_of_delta():
    module = dynamics.OneHidden(3, width=50, d=2).double()
    errors, spreads = [], []
    for delta in (0.1, 0.01, 0.001):
        x, labels, centres = clustered(delta)
        loss, grad = gradient(module, x)
        v = dynamics.velocity(module, x, loss)
        beta = dynamics.cluster_beta(module.B.detach(), centres, 2)
        predicted = dynamics.cluster_velocity(grad, labels, centres, beta)
        errors.append(float((v - predicted).norm() / predicted.norm()))
        motion = dynamics.cluster_motion(v, labels)
        spreads.append(float(motion.spread.max()))
    for values in (errors, spreads):
        slope = np.polyfit(np.log([0.1, 0.01, 0.001]), np.log(values), 1)[0]
        assert 0.8 < slope < 1.2
    assert errors[-1] < 0.05


def test_without_a_network_a_cluster_has_no_common_velocity():
    module = dynamics.OneHidden(3, width=50, d=2).double()
    x, labels, _ = clustered(0.001)
    z = rows(len(x), 2, seed=5)  # embeddings that know nothing of the clusters
    loss = lambda z: InfoNCE(Cosine(0.5))(z[::2][:10], z[1::2][:10])
    free = -dynamics.gradient(loss, z)
    with_kernel = -torch.einsum(
        "ijkl,jl->ik", dynamics.neural_kernel(module, x), dynamics.gradient(loss, z)
    )
    assert float(dynamics.cluster_motion(with_kernel, labels).coherence.min()) > 0.99
    assert float(dynamics.cluster_motion(free, labels).coherence.max()) < 0.9


def test_cor_4_6_beta_tends_to_one_half():
    centres = torch.eye(3).double()
    B = torch.randn(40000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    beta = dynamics.cluster_beta(B, centres, 2, torch.relu)
    assert beta.shape == (3, 2)
    assert float((beta - 0.5).abs().max()) < 0.02


def test_remark_4_4_with_equal_gradients_speed_goes_with_size():
    x, labels, centres = clustered(0.0)
    centres = centres / centres.norm(dim=1, keepdim=True)
    K = dynamics.limit_kernel(centres[labels], 1)
    v = -torch.einsum("ijkl,jl->ik", K, torch.ones(len(x), 1).double())
    motion = dynamics.cluster_motion(v, labels)
    close(motion.speeds / motion.sizes, torch.full((3,), 0.5))
    close(v, dynamics.cluster_velocity(torch.ones(len(x), 1).double(), labels, centres))


def test_motion_against_a_loop_and_its_extremes():
    v, labels = rows(10, 3), torch.tensor([0, 1, 1, 0, 2, 1, 0, 2, 2, 2])
    motion = dynamics.cluster_motion(v, labels)
    for q in range(3):
        part = v[labels == q]
        close(motion.means[q], part.mean(dim=0))
        close(motion.spread[q], (part - part.mean(dim=0)).norm(dim=1).square().mean().sqrt())
        close(
            motion.coherence[q], part.mean(dim=0).norm() / part.norm(dim=1).square().mean().sqrt()
        )
    still = dynamics.cluster_motion(0 * v, labels)
    assert still.coherence.tolist() == [0, 0, 0]
    close(dynamics.cluster_motion(torch.ones(10, 3).double(), labels).coherence, torch.ones(3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dynamics.OneHidden(0, 1, 1), "received 0, 1 and 1"),
        (lambda: dynamics.limit_kernel(torch.ones(3), 1), r"shape \(3,\) and d = 1"),
        (
            lambda: dynamics.cluster_motion(torch.ones(2, 1), torch.tensor([-1, 0])),
            "from 0; received -1",
        ),
        (lambda: dynamics.cluster_motion(torch.ones(2, 1), torch.tensor([True, False])), "bool"),
        (lambda: dynamics.one_hidden_kernel(torch.ones(5, 2), torch.ones(3, 2), 2), "d = 2"),
        (lambda: dynamics.cluster_beta(torch.ones(4, 2), torch.ones(1, 3), 2), r"\(1, 3\)"),
        (
            lambda: dynamics.cluster_motion(torch.ones(2, 1), torch.tensor([0, 2])),
            r"sizes are \[1, 0, 1\]",
        ),
        (
            lambda: dynamics.cluster_velocity(
                torch.ones(2, 1), torch.tensor([0, 1]), torch.ones(3, 2)
            ),
            "each of 2 clusters; received 3",
        ),
        (
            lambda: dynamics.cluster_motion(torch.ones(2, 1), torch.tensor([0.0, 1.0])),
            "float32",
        ),
    ],
)
def test_wrong_calls_are_refused_with_numbers(call, words):
    with pytest.raises(InputError, match=words):
        call()
