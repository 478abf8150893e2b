"""Gradient caching against the plain step: same gradients, same buffers, one graph at a time."""

import copy
import gc
import random
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from chiaroscuro.engine import cached_backward, distributed_loss
from chiaroscuro.errors import InputError
from chiaroscuro.kernels import Cosine, Gaussian, Learnable
from chiaroscuro.objectives import (
    BYOL,
    DINO,
    Debiased,
    InfoNCE,
    Matryoshka,
    SigLIP,
    SupCon,
    SwAV,
    VICReg,
)

N, D_IN, D = 11, 6, 4
TOLERANCE = 1e-12


def batch(n: int = N, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return list(torch.randn(2, n, D_IN, dtype=dtype, generator=generator))


def network(*middle: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(D_IN, 8), *middle, nn.Tanh(), nn.Linear(8, D)).to(dtype)


def plain(encode, views, loss, micro_batch: int = N) -> Tensor:
    """All micro-batches in one graph: what caching must equal, given the same random numbers."""
    encoders = encode if isinstance(encode, tuple) else [encode] * len(views)
    z = [
        torch.cat([f(x[i : i + micro_batch]) for i in range(0, len(x), micro_batch)])
        for f, x in zip(encoders, views, strict=True)
    ]
    value = loss(*z)
    value.backward()
    return value.detach()


def gradients(*modules: nn.Module) -> list[Tensor]:
    return [p.grad for module in modules for p in module.parameters()]


def same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = TOLERANCE) -> bool:
    size = max(t.abs().max() for t in theirs)
    return all((a - b).abs().max() <= tolerance * size for a, b in zip(ours, theirs, strict=True))


def both_ways(make: Callable[[], nn.Module], loss, views, micro_batch: int):
    """The two networks after a cached and a plain step, from the same random state."""
    cached, honest = make(), make()
    torch.manual_seed(5)
    ours = cached_backward(cached, views, loss, micro_batch)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    theirs = plain(honest, views, loss, micro_batch)
    assert torch.equal(after, torch.get_rng_state())
    assert torch.allclose(ours, theirs, rtol=1e-12)
    assert not ours.requires_grad
    return cached, honest


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 10, 11, 12, 1000])
@pytest.mark.parametrize(
    "objective", [InfoNCE(), InfoNCE(Gaussian(0.5), anchors="first"), VICReg()]
)
def test_it_is_the_plain_step(objective, micro_batch):
    cached, honest = both_ways(network, objective, batch(), micro_batch)
    assert same(gradients(cached), gradients(honest))
    whole = network()
    plain(whole, batch(), objective)
    assert same(gradients(cached), gradients(whole))


GROUPS = torch.arange(N) % 4
METHODS = {
    "siglip": SigLIP(Cosine(0.3), bias=-1.0),
    "siglip with groups": lambda z1, z2: SigLIP(Cosine(0.3), bias=-1.0)(z1, z2, groups=GROUPS),
    "groups": lambda z1, z2: InfoNCE()(z1, z2, groups=GROUPS),
    "matryoshka": Matryoshka(InfoNCE(), (2, D)),
    "hard negatives": Debiased(prior=0.1, beta=0.5),
    "swav": SwAV(tau=0.3, epsilon=0.2),
    "dino": DINO(tau=0.3, target_tau=0.2),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_loss_over_the_batch_is_the_plain_step(name):
    loss = METHODS[name]
    cached, whole = network(), network()
    cached_backward(cached, batch(), loss, 4)
    plain(whole, batch(), loss)
    assert same(gradients(cached), gradients(whole))


def test_it_is_not_gradient_accumulation():
    accumulated = network()
    for i in range(0, N, 4):
        plain(accumulated, [x[i : i + 4] for x in batch()], InfoNCE())
    cached = network()
    cached_backward(cached, batch(), InfoNCE(), 4)
    assert not same(gradients(cached), gradients(accumulated), 0.1)


@pytest.mark.parametrize("micro_batch", [1, 3, 11])
def test_dropout_draws_the_same_masks_twice(micro_batch):
    cached, honest = both_ways(lambda: network(nn.Dropout(0.5)), InfoNCE(), batch(), micro_batch)
    assert same(gradients(cached), gradients(honest))
    again = network(nn.Dropout(0.5))
    torch.manual_seed(6)
    cached_backward(again, batch(), InfoNCE(), micro_batch)
    assert not same(gradients(again), gradients(honest), 0.01)


def test_a_loss_may_draw_random_numbers_too():
    noisy = lambda z1, z2: InfoNCE()(nn.functional.dropout(z1), z2)
    cached, honest = both_ways(lambda: network(nn.Dropout(0.5)), noisy, batch(), 4)
    assert same(gradients(cached), gradients(honest))


def test_gradients_are_added_to_what_is_there():
    cached, honest = network(), network()
    for _ in range(2):
        cached_backward(cached, batch(), InfoNCE(), 4)
        plain(honest, batch(), InfoNCE())
    assert same(gradients(cached), gradients(honest))


def test_it_works_where_gradients_are_off():
    cached, honest = network(), network()
    with torch.no_grad():
        cached_backward(cached, batch(), InfoNCE(), 4)
    plain(honest, batch(), InfoNCE())
    assert same(gradients(cached), gradients(honest))


# ---- what is embedded, and by what ----


def test_two_encoders_like_clip():
    pair, honest = (network(), network(nn.ReLU())), (network(), network(nn.ReLU()))
    cached_backward(pair, batch(), InfoNCE(), 4)
    plain(honest, batch(), InfoNCE())
    assert same(gradients(*pair), gradients(*honest))


def test_a_frozen_target_and_a_view_without_gradient():
    pair, honest = (network(), network().requires_grad_(False)), network()
    cached_backward(pair, batch(), BYOL(), 4)
    plain((honest, pair[1]), batch(), BYOL())
    assert same(gradients(pair[0]), gradients(honest))
    assert gradients(pair[1]) == [None] * 4
    shared, honest = network(), network()
    cached_backward(shared, batch(), BYOL(), 4)
    plain(honest, batch(), BYOL())
    assert same(gradients(shared), gradients(honest))


def test_one_view_and_labels():
    labels = torch.arange(N) % 3
    loss = partial(distributed_loss, SupCon(), labels=labels)
    cached, honest = both_ways(network, loss, batch()[:1], 4)
    assert same(gradients(cached), gradients(honest))


def test_views_may_be_dicts_or_lists():
    x1, x2 = batch()
    words = [[str(number) for number in row] for row in x2.tolist()]
    net = network()

    def read(x) -> Tensor:
        if isinstance(x, dict):
            return net(x["a"] + x["b"])
        return net(torch.tensor([[float(word) for word in row] for row in x], dtype=x1.dtype))

    cached_backward(read, ({"a": x1 / 2, "b": x1 / 2}, words), InfoNCE(), 4)
    honest = network()
    plain(honest, (x1, x2), InfoNCE())
    assert same(gradients(net), gradients(honest))


def test_the_objective_learns_once():
    objectives = [InfoNCE(Cosine(Learnable(0.3))).double() for _ in range(2)]
    queue = torch.randn(5, D, dtype=torch.float64)
    cached_backward(
        network(), batch(), lambda *z: distributed_loss(objectives[0], *z, queue=queue), 2
    )
    plain(network(), batch(), lambda *z: objectives[1](*z, queue=queue))
    assert same(gradients(objectives[0]), gradients(objectives[1]))


# ---- batch statistics ----


def test_batch_norm_in_training_sees_micro_batches():
    cached, ghost = both_ways(
        lambda: network(nn.BatchNorm1d(8)), InfoNCE(), batch(12), micro_batch=4
    )
    assert same(gradients(cached), gradients(ghost))
    for ours, theirs in zip(cached.buffers(), ghost.buffers(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12)
    assert int(cached[1].num_batches_tracked) == 6  # of two views three micro-batches each, once
    whole = network(nn.BatchNorm1d(8))
    plain(whole, batch(12), InfoNCE(), micro_batch=12)
    assert not same(gradients(cached), gradients(whole), 0.01)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("how", ["module", "lambda", "method", "partial"])
def test_buffers_change_once_whoever_calls_the_module(how, momentum):
    make = lambda: network(nn.BatchNorm1d(8, momentum=momentum))
    cached, ghost = make(), make()
    encode = {
        "module": cached,
        "lambda": lambda x: cached(x),
        "method": cached.forward,
        "partial": partial(cached),
    }[how]
    cached_backward(encode, batch(12), InfoNCE(), 4)
    plain(ghost, batch(12), InfoNCE(), 4)
    for ours, theirs in zip(cached.buffers(), ghost.buffers(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12)


def test_batch_norm_in_evaluation_is_the_plain_step():
    def make() -> nn.Module:
        net = network(nn.BatchNorm1d(8))
        net[1].running_mean.fill_(0.3), net[1].running_var.fill_(1.7)
        return net.eval()

    cached, whole = make(), make()
    cached_backward(cached, batch(), InfoNCE(), 4)
    plain(whole, batch(), InfoNCE())
    assert same(gradients(cached), gradients(whole))
    for ours, theirs in zip(cached.buffers(), make().buffers(), strict=True):
        assert torch.equal(ours, theirs)


class Counting(nn.Module):
    """Its output depends on how often it was called; one buffer is changed, one replaced."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.register_buffer("replaced", torch.zeros((), dtype=torch.float64))
        self.linear = nn.Linear(D_IN, D).double()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.replaced = self.replaced + 1
        return self.linear(x) * (1 + self.calls + self.replaced)


def test_the_replay_goes_through_the_same_states():
    cached = Counting()
    ghost = copy.deepcopy(cached)
    cached_backward(cached, batch(), InfoNCE(Gaussian(0.5)), 4)
    plain(ghost, batch(), InfoNCE(Gaussian(0.5)), 4)
    assert same(gradients(cached), gradients(ghost))
    assert (float(cached.calls), float(cached.replaced)) == (6, 6)


def test_buffers_are_put_back_when_the_first_pass_fails():
    net = network(nn.BatchNorm1d(8))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match="more than 1 value"):  # the last one has a single row
        cached_backward(net, batch(9), InfoNCE(), 4)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


# ---- precision ----


class InFloat32(nn.Linear):
    """A last layer that steps out of autocast."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def test_autocast_is_that_of_the_caller():
    views = batch(N, torch.float32)
    nets = [network(nn.Tanh(), dtype=torch.float32).append(InFloat32(D, D)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nets[0][:-1](views[0]).dtype == torch.bfloat16
        nets[0](views[0])  # fills the cache of cast weights
        cached_backward(nets[0], views, InfoNCE(), 4)
        loss = InfoNCE()(*(torch.cat([nets[1](x[i : i + 4]) for i in (0, 4, 8)]) for x in views))
    loss.backward()  # outside, as one should
    ours, theirs = (gradients(net) for net in nets)
    # the gradients of the two agree to float32 where the layer does, and to bfloat16 before:
    # there one graph adds them up in bfloat16, here micro-batches do in float32
    assert same(ours[-2:], theirs[-2:], 1e-6)
    assert same(ours, theirs, 2 * torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("scale", [4.0, torch.tensor(4.0)])
def test_a_scale_is_for_the_gradient_only(scale):
    cached, honest = network(), network()
    ours = cached_backward(cached, batch(), InfoNCE(), 4, scale)
    theirs = plain(honest, batch(), InfoNCE())
    assert torch.allclose(ours, theirs, rtol=1e-12)
    assert same(gradients(cached), [4 * g for g in gradients(honest)])


def test_a_grad_scaler_steps():
    cached, honest = network(), network()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimisers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (cached, honest)]
    cached_backward(cached, batch(), InfoNCE(), 4, scaler.scale)
    scaler.step(optimisers[0])
    plain(honest, batch(), InfoNCE())
    optimisers[1].step()
    assert same(list(cached.parameters()), list(honest.parameters()))


# ---- memory ----


class Saved:
    """A tensor kept for a backward pass, wrapped so that its life can be followed."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


class Watch:
    """Counts the elements that graphs keep alive, and the most there were at once."""

    def __init__(self):
        self.alive = self.peak = 0

    def pack(self, tensor: Tensor) -> Saved | Tensor:
        if isinstance(tensor, nn.Parameter) or tensor.is_leaf or tensor._base is not None:
            return tensor  # weights and inputs, there anyway
        saved = Saved(tensor)
        self._change(tensor.numel())
        weakref.finalize(saved, self._change, -tensor.numel())
        return saved

    def _change(self, elements: int) -> None:
        self.alive += elements
        self.peak = max(self.peak, self.alive)

    def unpack(self, saved: Saved | Tensor) -> Tensor:
        return saved.tensor if isinstance(saved, Saved) else saved


def peak(step: Callable[[], None]) -> int:
    gc.collect()
    watch = Watch()
    with torch.autograd.graph.saved_tensors_hooks(watch.pack, watch.unpack):
        step()
    gc.collect()
    assert watch.alive == 0
    return watch.peak


def test_one_micro_batch_has_a_graph_at_a_time():
    wide = lambda: nn.Sequential(
        nn.Linear(D_IN, 500), nn.Tanh(), nn.Linear(500, 500), nn.Tanh(), nn.Linear(500, D)
    )
    x = batch(64, torch.float32)
    one = peak(lambda: plain(wide(), [v[:4] for v in x[:1]], lambda z: z.square().mean()))
    whole = peak(lambda: plain(wide(), x, InfoNCE()))
    cached = peak(lambda: cached_backward(wide(), x, InfoNCE(), 4))
    assert whole > 30 * one  # of two views sixteen each
    assert cached < 1.1 * one
    twice = batch(128, torch.float32)
    assert peak(lambda: cached_backward(wide(), twice, InfoNCE(), 4)) == cached


# ---- refusals ----


def test_an_encoder_that_does_not_repeat_itself_is_refused():
    net = network()
    noise = random.Random(0)
    with pytest.raises(
        InputError, match=r"alike twice; received embeddings of size up to \d.* moved"
    ):
        cached_backward(lambda x: net(x + noise.gauss(0, 1)), batch(), InfoNCE(), 4)


BAD: dict[str, tuple[dict, str]] = {
    "no rows at a time": ({"micro_batch": 0}, "at least 1 row; received 0"),
    "half a row": ({"micro_batch": 0.5}, "received 0.5"),
    "true": ({"micro_batch": True}, "received True"),
    "a tensor of views": ({"views": torch.ones(2, 3, D_IN)}, "received Tensor"),
    "no views": ({"views": ()}, "received 0"),
    "three encoders": ({"encode": (nn.ReLU(),) * 3}, "each of 2 views; received .*'ReLU'"),
    "no encoder": ({"encode": None}, "received .*'NoneType'"),
    "ragged parts": (
        {"views": ({"a": torch.ones(3, 2), "b": torch.ones(4, 2)},) * 2},
        r"received \[3, 4\] in view 0",
    ),
    "too few rows": ({"encode": lambda x: x[:-1]}, r"each of 4 rows; received \(3, 6\)"),
    "no matrix": ({"encode": lambda x: x[..., None]}, r"received \(4, 6, 1\)"),
    "no tensor": ({"encode": lambda x: (x, x)}, "received tuple"),
    "no loss": ({"loss": lambda z1, z2: z1}, "needs a scalar"),
    "a constant": ({"loss": lambda z1, z2: torch.zeros(())}, "depends on the embeddings"),
    "unpaired views": (
        {"views": (torch.ones(5, D_IN), torch.ones(6, D_IN)), "encode": nn.Identity()},
        r"\(5, 6\) and \(6, 6\)",
    ),
    "no rows": (
        {"views": (torch.ones(0, D_IN),) * 2, "encode": nn.Identity()},
        "at least 1 pair; received 0",
    ),
    "not finite": ({"encode": lambda x: x / 0}, "needs finite embeddings; received 11 of 11 rows"),
}


@pytest.mark.parametrize(("change", "sentence"), BAD.values(), ids=BAD)
def test_wrong_calls_are_refused(change, sentence):
    call = {"encode": network(), "views": batch(), "loss": InfoNCE(), "micro_batch": 4}
    with pytest.raises(InputError, match=sentence):
        cached_backward(**{**call, **change})
