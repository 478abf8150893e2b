"""One step against transcriptions: MoCo's and BYOL's algorithms; half precision, compiling."""

import copy
import math
import os
import shutil

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from chiaroscuro.engine import FitOptions, build, read_settings
from chiaroscuro.engine.networks import as_compiled
from chiaroscuro.engine.state import Diverged, begin
from chiaroscuro.engine.step import read_losses, take_step
from chiaroscuro.errors import ChiaroError, InputError

SMALL = [
    "batch=6",
    "network.encoder=MLP(d_in=5, d=8, depth=2, width=8)",
    "network.projector=Projector(d=4, depth=1, last='none')",
    "optimiser.name=sgd",
    "optimiser.lr=0.1",
    "optimiser.momentum=0",
    "optimiser.weight_decay=0",
]
MOCO = [
    "objective=InfoNCE(Cosine(tau=0.07), OnlyPositive(), anchors='first')",
    "network.momentum=0.9",
    "network.queue=16",
]


def batches(n):
    draw = torch.Generator().manual_seed(0)
    return [tuple(torch.randn(2, 6, 5, generator=draw)) for _ in range(n)]


def begun(settings):
    networks = build(settings.network, settings.seed)
    options = FitOptions.of(settings)
    return begin(networks, settings.make_objective(), settings.optimiser, options)


def moved(sets, n=3, networks=None, lr=0.1):
    settings = read_settings("simclr", [*SMALL, *sets])
    state, options = begun(settings), FitOptions.of(settings)
    for group in state.optimiser.param_groups:
        group["lr"] = lr
    first = copy.deepcopy(state)
    losses = []
    for x1, x2 in batches(n):
        called = networks(state.networks) if networks else state.networks
        loss = [take_step(state, called, (x1, x2, None), options, n)]
        state.step += 1
        losses += read_losses(state, loss)
    return first, state, losses


def sgd(module, loss):
    module.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in module.parameters():
            p.sub_(p.grad, alpha=0.1)


def same(found, right):
    for (name, a), b in zip(found.named_parameters(), right.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-6, err_msg=name)


def test_moco_is_its_algorithm():
    """[he2020moco, Alg. 1]: the keys of the batch are nobody's negatives."""
    first, state, losses = moved(MOCO)
    f_q, f_k, queue = first.networks, first.target.module, list(first.queue)
    for (x_q, x_k), loss in zip(batches(3), losses, strict=True):
        q = normalize(f_q.project(f_q.encode(x_q)), dim=1)
        with torch.no_grad():
            keys = f_k.project(f_k.encode(x_k))
        k = normalize(keys, dim=1)
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ normalize(torch.stack(queue), dim=1).T
        logits = torch.cat([l_pos, l_neg], dim=1)
        value = cross_entropy(logits / 0.07, torch.zeros(len(q), dtype=torch.long))
        assert loss == pytest.approx(float(value.detach()), rel=1e-5)
        sgd(f_q, value)
        with torch.no_grad():
            for slow, fast in zip(f_k.parameters(), f_q.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
        queue = [*queue[len(keys) :], *keys]
    same(state.networks, f_q)
    same(state.target.module, f_k)
    ordered = torch.roll(state.queue, -state.oldest, 0)
    torch.testing.assert_close(ordered, torch.stack(queue), rtol=1e-4, atol=1e-5)


def test_symmetric_moco_sees_its_queue_from_both_sides():
    first, state, losses = moved([*MOCO, "symmetric=true"])
    f_q, f_k, queue = first.networks, first.target.module, list(first.queue)
    for (x1, x2), loss in zip(batches(3), losses, strict=True):
        with torch.no_grad():
            k1, k2 = (f_k.project(f_k.encode(x)) for x in (x1, x2))
        value = 0
        for x, keys in ((x1, k2), (x2, k1)):
            q, k = normalize(f_q.project(f_q.encode(x)), dim=1), normalize(keys, dim=1)
            l_neg = q @ normalize(torch.stack(queue), dim=1).T
            logits = torch.cat([(q * k).sum(1, keepdim=True), l_neg], dim=1) / 0.07
            value = value + cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        assert loss == pytest.approx(float(value.detach()), rel=1e-5)
        sgd(f_q, value)
        with torch.no_grad():
            for slow, fast in zip(f_k.parameters(), f_q.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
        queue = [*queue, *k2, *k1][-16:]
    same(state.networks, f_q)
    ordered = torch.roll(state.queue, -state.oldest, 0)
    torch.testing.assert_close(ordered, torch.stack(queue), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("more", [[], ["micro_batch=4"], MOCO], ids=["plain", "cached", "moco"])
def test_divergence_is_no_wrong_call(more):
    with pytest.raises(ChiaroError, match=r"of step 1 .*Lower `optimiser.lr` \(1e\+30\)") as caught:
        moved([*more, "optimiser.lr=1e30"], lr=1e30)
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_byol_is_its_algorithm(schedule):
    """[grill2020byol, Alg. 1], with the momentum of its Sec. 3.3."""
    first, state, losses = moved(
        [
            "objective=BYOL()",
            "symmetric=true",
            "network.momentum=0.9",
            f"network.momentum_schedule={schedule}",
            "network.predictor=Projector(d=4, depth=1, last='none')",
        ]
    )
    online, target = first.networks, first.target.module
    for k, ((x1, x2), loss) in enumerate(zip(batches(3), losses, strict=True)):
        value = 0
        for a, b in ((x1, x2), (x2, x1)):
            with torch.no_grad():
                z = normalize(target.project(target.encode(b)), dim=1)
            value = value + (normalize(online(a), dim=1) - z).square().sum(1).mean()
        assert loss == pytest.approx(float(value.detach()), rel=1e-5)
        sgd(online, value)
        tau = 0.9
        if schedule == "cosine":
            tau = 1 - (1 - 0.9) * (math.cos(math.pi * k / 3) + 1) / 2
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.copy_(tau * slow + (1 - tau) * fast)
    same(state.networks, online)
    same(state.target.module, target)


@pytest.mark.parametrize("more", [[], ["micro_batch=4"], MOCO], ids=["plain", "cached", "moco"])
def test_networks_in_bfloat16_and_the_loss_in_float32(more):
    seen = []

    class Seen(torch.nn.Module):
        def __init__(self, networks):
            super().__init__()
            self.networks = networks

        def forward(self, *x, **options):
            z = self.networks(*x, **options)
            seen.append({part.dtype for part in ([z] if isinstance(z, torch.Tensor) else z)})
            return z

    _, state, losses = moved([*more, "precision=bfloat16"], networks=Seen)
    assert seen
    assert all(dtypes == {torch.bfloat16} for dtypes in seen)
    assert {p.dtype for p in state.networks.parameters()} == {torch.float32}
    _, full, exact = moved(more)
    for a, b in zip(losses, exact, strict=True):
        assert a == pytest.approx(b, rel=0.05)
        assert a != b
    # the loss itself is not rounded to the 8 bits of a bfloat16
    assert any(float(torch.tensor(loss).bfloat16()) != loss for loss in losses)
    drift = max(
        float((a - b).detach().abs().max())
        for a, b in zip(state.networks.parameters(), full.networks.parameters(), strict=True)
    )
    assert 0 < drift < 0.05


def test_float16_scales_the_loss_and_leaves_out_a_step_that_overflows():
    first, state, losses = moved(["precision=float16", "optimiser.clip=1"])
    _, right, exact = moved(["optimiser.clip=1"])
    np.testing.assert_allclose(losses, exact, rtol=5e-3)
    for (name, a), b in zip(
        state.networks.named_parameters(), right.networks.parameters(), strict=True
    ):
        np.testing.assert_allclose(a.detach(), b.detach(), atol=2e-3, err_msg=name)
    assert state.scaler.get_scale() == first.scaler.get_scale() == 65536.0
    settings = read_settings("simclr", [*SMALL, "precision=float16"])
    state, options = begun(settings), FitOptions.of(settings)
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    before = copy.deepcopy(state.networks)
    (x1, x2), *_ = batches(1)
    loss = take_step(state, state.networks, (x1, x2, None), options, 1)
    same(state.networks, before)
    assert state.scaler.get_scale() == 2.0**99
    assert math.isfinite(float(loss))


def test_losses_are_read_together_and_the_first_bad_one_is_named():
    """Where they are read late, a training stops within the steps that are read at once."""
    settings = read_settings("simclr", SMALL)
    state = begun(settings)
    state.step = 7
    losses = [torch.tensor(x) for x in (1.0, math.nan, 2.0)]
    with pytest.raises(Diverged, match=r"^The loss of step 5 is nan\. Lower") as caught:
        read_losses(state, losses)
    assert caught.value.step == 5
    assert losses == []
    assert read_losses(state, []) == []


def test_without_a_compiler_compiling_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match="`compile = true` needs a C\\+\\+ compiler"):
        as_compiled(begun(read_settings("simclr", SMALL)).networks)


@pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")),
    reason="no C++ compiler",
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_networks_take_the_same_steps():
    once = []

    def compiled(networks):
        once.append(as_compiled(networks)) if not once else None
        return once[0]

    _, state, losses = moved([], 2, networks=compiled)
    first, plain, exact = moved([], 2)
    assert losses == pytest.approx(exact, rel=1e-4)
    same(state.networks, plain.networks)
    assert list(state.networks.state_dict()) == list(first.networks.state_dict())
