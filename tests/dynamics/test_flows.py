"""Flows against closed forms, against an optimiser, and against each other."""

import math

import pytest
import torch
from torch import nn

from chiaroscuro import dynamics
from chiaroscuro.dynamics import Steps
from chiaroscuro.errors import InputError
from chiaroscuro.kernels import Cosine, Gaussian
from chiaroscuro.numerics import unit
from chiaroscuro.objectives import InfoNCE
from dynamics import slow
from tolerances import close


def net(seed=0, inputs=2, d=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, d)).double()


def rows(n, d=2, seed=1):
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def two_views(objective):
    return lambda z: objective(*z.chunk(2))


def test_vanilla_is_gradient_descent():
    flow = dynamics.vanilla_flow(
        lambda z: z.pow(4).sum() / 4, torch.tensor([[1.0]]).double(), Steps(0.1, 20)
    )
    close(flow.z.flatten(), slow.descent(lambda z: z**3, 1.0, 0.1, 20))
    assert flow.kind == "vanilla"
    close(flow.times, torch.arange(21).double() * 0.1)
    close(flow.losses, flow.z.flatten() ** 4 / 4)


def test_a_rule_has_its_order():
    exact = math.exp(-1.0)
    ends = {
        (rule, count): float(
            dynamics.vanilla_flow(
                lambda z: z.square().sum() / 2,
                torch.ones(1, 1).double(),
                Steps(1 / count, count, every=count, rule=rule),
            ).z[-1]
        )
        for rule in ("euler", "rk4")
        for count in (10, 20)
    }
    ratio = lambda rule: (ends[rule, 10] - exact) / (ends[rule, 20] - exact)
    assert 1.9 < ratio("euler") < 2.2
    assert 15 < ratio("rk4") < 17.5


def test_what_is_recorded():
    flow = dynamics.vanilla_flow(lambda z: z.sum(), rows(3), Steps(0.5, 7, every=3))
    assert flow.times.tolist() == [0, 1.5, 3.0, 3.5]
    assert flow.z.shape == (4, 3, 2)
    close(flow.velocities, -torch.ones(3, 3, 2))


def test_the_identity_kernel_is_vanilla_and_a_function_is_its_matrix():
    z, loss = rows(6), two_views(InfoNCE(Gaussian(0.5)))
    eye = torch.einsum("ij,kl->ijkl", torch.eye(6), torch.eye(2)).double()
    vanilla = dynamics.vanilla_flow(loss, z, Steps(0.2, 5))
    close(dynamics.kernel_flow(loss, z, eye, Steps(0.2, 5)).z, vanilla.z)
    module, x = net(), rows(6, seed=3)
    K = dynamics.neural_kernel(module, x)
    act = lambda v: dynamics.kernel_action(module, x, v)
    close(
        dynamics.kernel_flow(loss, z, act, Steps(0.1, 3)).z,
        dynamics.kernel_flow(loss, z, K, Steps(0.1, 3)).z,
    )


def test_for_a_module_linear_in_its_weights_the_kernel_flow_is_training():
    torch.manual_seed(0)
    module, x = nn.Linear(3, 2).double(), rows(8, 3)
    loss, steps = two_views(InfoNCE(Cosine(0.5))), Steps(0.3, 10)
    by_kernel = dynamics.kernel_flow(loss, module(x), dynamics.neural_kernel(module, x), steps)
    close(by_kernel.z, dynamics.training_flow(loss, module, x, steps).z)


def test_for_others_it_agrees_to_second_order_in_the_step():
    module, x = net(), rows(8)
    loss = two_views(InfoNCE(Cosine(0.5)))
    K, z = dynamics.neural_kernel(module, x), module(x)
    gaps = [
        float(
            (
                dynamics.kernel_flow(loss, z, K, Steps(size, 1)).z
                - dynamics.training_flow(loss, module, x, Steps(size, 1)).z
            ).norm()
        )
        for size in (1e-2, 1e-3)
    ]
    assert 80 < gaps[0] / gaps[1] < 120


def test_the_total_loss_needs_no_further_factor():
    module, x = net(), rows(8)
    loss, size = two_views(InfoNCE(Cosine(0.5))), 1e-5
    moved = dynamics.training_flow(loss, module, x, Steps(size, 1)).velocities[0]
    right = dynamics.velocity(module, x, loss)
    assert float((moved - right).norm() / right.norm()) < 1e-3
    assert float((moved - right / len(x)).norm() / right.norm()) > 0.5  # eq. (11) as printed


def test_training_is_sgd_and_leaves_the_module_alone():
    module, x = net(), rows(8)
    before = {name: p.clone() for name, p in module.state_dict().items()}
    loss = two_views(InfoNCE(Cosine(0.5)))
    flow = dynamics.training_flow(loss, module, x, Steps(0.5, 6))
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    for step in range(6):
        close(flow.z[step], module(x), what=f"step {step}")
        optimiser.zero_grad()
        loss(module(x)).backward()
        optimiser.step()
    close(flow.z[6], module(x))
    for name, p in module.named_parameters():
        close(flow.parameters[name], p)


def test_projection_keeps_the_sphere():
    loss = two_views(InfoNCE(Gaussian(0.5)))
    flow = dynamics.vanilla_flow(loss, unit(rows(10)), Steps(0.5, 20), project=unit)
    close(flow.z.norm(dim=2), torch.ones(21, 10))
    assert flow.losses[-1] < flow.losses[0]


def test_theorem_4_2_vanilla_keeps_invariance_and_a_network_does_not():
    torch.manual_seed(0)
    x = torch.cat([rows(12), torch.zeros(12, 1).double()], dim=1)
    views = x + torch.tensor([0.0, 0.0, 1.0])  # moves in a direction the map does not see
    module = net(inputs=3)
    with torch.no_grad():
        module[0].weight[:, 2] = 0
    both = torch.cat([x, views])
    loss, steps = two_views(InfoNCE(Cosine(0.5))), Steps(0.5, 10)
    vanilla = dynamics.vanilla_flow(loss, module(both), steps)
    trained = dynamics.training_flow(loss, module, both, steps)
    halves = lambda flow: flow.z.chunk(2, dim=1)
    assert float(dynamics.invariance_drift(*halves(vanilla)).max()) < 1e-12
    drift = dynamics.invariance_drift(*halves(trained))
    assert float(drift[0]) == 0
    assert float(drift[-1]) > 0.02
    rate = dynamics.invariance_rate(module, x, views, loss)
    small = dynamics.training_flow(loss, module, both, Steps(1e-5, 1))
    assert float(dynamics.invariance_drift(*halves(small))[-1]) / 1e-5 == pytest.approx(rate, 1e-3)
    with torch.no_grad():  # a map that does not see the view in its gradients either: eq. (36)
        still = torch.cat([x, x])
        assert dynamics.invariance_rate(module, x, x, loss) < 1e-12
        assert len(still) == 24


def test_relative_drift_and_its_extremes():
    z = rows(5)
    assert float(dynamics.invariance_drift(z, z, relative=True)) == 0
    assert float(dynamics.invariance_drift(z * 0, z * 0, relative=True)) == 0
    one = dynamics.invariance_drift(z, -z, relative=True)
    close(dynamics.invariance_drift(7 * z, -7 * z, relative=True), one)
    opposite = torch.tensor([[1.0, 0.0]]).double()
    close(dynamics.invariance_drift(opposite, -opposite, relative=True), 2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Steps(0.0, 1), "above 0.0; received 0.0"),
        (lambda: Steps(0.1, -1), "received -1 and 1"),
        (lambda: Steps(0.1, 2.5), "received 2.5 and 1"),
        (lambda: dynamics.vanilla_flow(torch.sum, torch.ones(3), Steps(0.1, 1)), r"shape \(3,\)"),
        (lambda: dynamics.vanilla_flow(lambda z: z, rows(3), Steps(0.1, 1)), r"shape \(3, 2\)"),
        (
            lambda: dynamics.vanilla_flow(lambda z: torch.tensor(1.5), rows(3), Steps(0.1, 1)),
            "that of 1.5 has none",
        ),
        (
            lambda: dynamics.kernel_flow(torch.sum, rows(3), lambda v: v.T @ v, Steps(0.1, 1)),
            r"\(3, 2\), like v; received \(2, 2\)",
        ),
        (lambda: Steps(0.1, 1, rule="leapfrog"), "`leapfrog`"),
        (
            lambda: dynamics.kernel_flow(torch.sum, rows(3), torch.ones(2, 2), Steps(0.1, 1)),
            r"\(3, 3, 2, 2\); received \(2, 2\)",
        ),
        (
            lambda: dynamics.vanilla_flow(lambda z: z.pow(4).sum(), 10 * rows(2), Steps(1.0, 9)),
            "smaller steps",
        ),
        (lambda: dynamics.invariance_drift(rows(2), rows(3)), r"\(2, 2\) and \(3, 2\)"),
    ],
)
def test_wrong_calls_are_refused_with_numbers(call, words):
    with pytest.raises(InputError, match=words):
        call()
