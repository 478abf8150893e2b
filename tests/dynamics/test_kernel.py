"""The neural kernel against one backward pass per sample and output, for every kind of layer."""

import pytest
import torch
from torch import nn

from chiaroscuro import dynamics
from chiaroscuro.dynamics import capture, factors
from chiaroscuro.dynamics.factors import Lazy, Outer
from chiaroscuro.errors import InputError
from dynamics import slow
from tolerances import close


class Tokens(nn.Module):
    """Ids to a mean embedding; the table serves as output weights too, by other means."""

    def __init__(self, tied):
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=0)
        self.inner = nn.Linear(4, 4)
        self.tied = tied

    def forward(self, ids):
        h = torch.tanh(self.inner(self.table(ids))).mean(dim=1)
        return h @ self.table.weight.T[:, 1:4] if self.tied else h


class Attention(nn.Module):
    """A class token (a bare parameter), attention (weights used by function), layer norm."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        x = self.norm(x + self.attend(x, x, x, need_weights=False)[0])
        return self.out(x[:, 0])


class Twice(nn.Module):
    """A layer called twice, at different numbers of places; a weight that two layers share."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3, bias=False)
        self.c = nn.Linear(3, 3)
        self.c.weight = self.b.weight

    def forward(self, x):
        once = torch.sigmoid(self.a(x))
        more = torch.sigmoid(self.a(torch.stack([x, once], dim=1))).sum(dim=1)
        return self.c(torch.tanh(self.b(once + more)))


class TimeFirst(nn.Module):
    """Works on (T, n, .) inside, so rows of its layers are not samples."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3)

    def forward(self, x):
        return torch.tanh(self.a(x.transpose(0, 1))).sum(dim=0)


class Recurrent(nn.Module):
    """A layer for which `vmap` has no rule."""

    def __init__(self):
        super().__init__()
        self.steps = nn.LSTM(2, 3, batch_first=True)
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return self.out(self.steps(x)[0][:, -1])


class Counting(nn.Module):
    """Writes to a buffer as it goes, which `torch.func` forbids."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3))
        self.unused = nn.Parameter(torch.randn(2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x * self.scale)


class Chance(nn.Module):
    """Drops out by function, whatever its mode."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x):
        return nn.functional.dropout(self.a(x), 0.5)


class Across(nn.Module):
    """Mixes the samples of a batch."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x):
        z = self.a(x)
        return z - z.mean(dim=0)


def frozen(module, name):
    module.get_parameter(name).requires_grad_(False)
    return module


def trained(module):
    """Running statistics that are not those of the start."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(layer.weight)
    return module


def ids(n):
    return torch.randint(0, 7, (n, 5), generator=torch.Generator().manual_seed(1))


MODULES = {
    "linear": (lambda: nn.Linear(3, 2), (3,)),
    "no bias": (lambda: nn.Linear(3, 2, bias=False), (3,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), (3,)),
    "in place": (lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(True), nn.Linear(8, 2)), (3,)),
    "weight frozen": (lambda: frozen(nn.Sequential(nn.Linear(3, 2)), "0.weight"), (3,)),
    "bias frozen": (lambda: frozen(nn.Sequential(nn.Linear(3, 2)), "0.bias"), (3,)),
    "places": (
        lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Flatten(), nn.Linear(24, 2)),
        (4, 3),
    ),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, stride=2), nn.ReLU(True), nn.Conv2d(4, 3, 2, dilation=2),
            nn.Tanh(), nn.Flatten(), nn.LazyLinear(2),
        ),
        (2, 7, 7),
    ),
    "conv modes": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same", groups=2), nn.Tanh(),
            nn.Conv2d(4, 4, (1, 3), padding=(0, 1), padding_mode="circular", bias=False),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ),
        (2, 4, 5),
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 2, groups=3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        (3, 4, 4),
    ),
    "conv 1d": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh(), nn.Flatten(),
            nn.LazyLinear(2),
        ),
        (2, 6),
    ),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4),
            nn.BatchNorm1d(4), nn.Linear(4, 2),
        ),
        (2, 4, 4),
    ),
    "other norms": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.LayerNorm([3, 3]), nn.Flatten(),
            nn.LazyLinear(4), nn.LayerNorm(4), nn.Linear(4, 2),
        ),
        (2, 4, 4),
    ),
    "by func alone": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(2, 2, 2), nn.PReLU(2), nn.Flatten(), nn.LazyLinear(2)
        ),
        (2, 3, 3),
    ),
    "attention": (Attention, (3, 4)),
    "twice": (Twice, (3,)),
    "time first": (TimeFirst, (4, 2)),
    "recurrent": (Recurrent, (4, 2)),
    "counting": (Counting, (3,)),
    "as many times as samples": (TimeFirst, (5, 2)),
    "tokens": (lambda: Tokens(tied=False), "ids"),
    "tied tokens": (lambda: Tokens(tied=True), "ids"),
    "one hidden": (lambda: dynamics.OneHidden(3, 5, 2), (3,)),
}  # fmt: skip


def made(name, n=5):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make()
    x = ids(n) if shape == "ids" else torch.randn(n, *shape)
    module(x if shape == "ids" else x.float())  # lazy layers take their shape
    module = trained(module).double().eval()
    return module, x if shape == "ids" else x.double()


@pytest.mark.parametrize("name", MODULES)
def test_every_layer_against_the_loop(name):
    module, x = made(name)
    expected = slow.kernel(module, x)
    K = dynamics.neural_kernel(module, x)
    close(K, expected, what=name)
    v = torch.randn(*K.shape[::2], dtype=torch.float64)
    close(dynamics.kernel_action(module, x, v), torch.einsum("ijkl,jl->ik", expected, v))
    trace = expected.diagonal(dim1=0, dim2=1).diagonal(dim1=0, dim2=1).sum()
    close(dynamics.kernel_trace(module, x), trace)
    close(dynamics.neural_kernel(module, x[:2], x[2:]), expected[:2, 2:], what="two batches")


@pytest.mark.parametrize("name", ["places", "conv", "tokens", "twice"])
@pytest.mark.parametrize("by_places", [True, False])
def test_products_of_places_and_formed_gradients_agree(name, by_places, monkeypatch):
    module, x = made(name)
    monkeypatch.setattr(Outer, "by_places", by_places)
    monkeypatch.setattr(factors, "BUDGET", 4000)  # several chunks
    from chiaroscuro.dynamics import kernel

    monkeypatch.setattr(kernel, "BUDGET", 4000)
    monkeypatch.setattr(kernel, "_ROWS", 3)  # several blocks, not a multiple of d
    close(dynamics.neural_kernel(module, x), slow.kernel(module, x), what=name)
    close(dynamics.neural_kernel(module, x[:2], x[2:]), slow.kernel(module, x[:2], x[2:]))


def kinds(name):
    module, x = made(name)
    return [type(f) for f in capture.factors(module, x)[1]]


def test_structure_is_used_where_there_is_some_and_only_there():
    assert kinds("mlp") == [Outer, Outer]
    assert Lazy not in kinds("conv") + kinds("batch norm") + kinds("other norms") + kinds("tokens")
    assert Lazy in kinds("attention")  # token, and weights that attention uses by function
    assert kinds("tied tokens").count(Lazy) == 1  # the check found the second use of the table
    assert kinds("time first") == [Lazy]
    assert kinds("as many times as samples") == [Lazy]
    module, x = made("tied tokens")
    assert sum(isinstance(f, Outer) for f in capture.factors(module, x)[1]) == 1  # the inner layer


def test_it_is_symmetric_positive_and_in_the_stated_order():
    module, x = made("mlp", n=6)
    K = dynamics.neural_kernel(module, x)
    assert K.shape == (6, 6, 2, 2)
    assert torch.equal(K, K.permute(1, 0, 3, 2))
    matrix = K.permute(0, 2, 1, 3).reshape(12, 12)
    assert matrix.data_ptr() == K.data_ptr()  # no copy
    assert torch.linalg.eigvalsh(matrix).min() > -1e-12
    J = slow.jacobian(module, x)
    close(K[1, 4, 0, 1], J[1, 0] @ J[4, 1])


def test_single_precision_is_close_to_double():
    module, x = made("conv")
    exact = dynamics.neural_kernel(module, x)
    close(dynamics.neural_kernel(module.float(), x.float()), exact)


def test_nothing_is_left_behind():
    module, x = made("mlp")
    dynamics.neural_kernel(module, x)
    dynamics.kernel_action(module, x, torch.ones(5, 2, dtype=torch.float64))
    assert all(not layer._forward_hooks for layer in module.modules())
    assert all(p.grad is None for p in module.parameters())
    with torch.no_grad():
        dynamics.neural_kernel(module, x)
        assert not torch.is_grad_enabled()


def test_one_step_moves_the_outputs_as_the_kernel_says_with_an_error_that_falls_with_the_step():
    module, x = made("mlp")
    loss = lambda z: (z.square() * torch.tensor([1.0, -0.5])).sum() + z[0] @ z[1]
    v = dynamics.velocity(module, x, loss)
    z = module(x).detach()
    close(v, -torch.einsum("ijkl,jl->ik", slow.kernel(module, x), dynamics.gradient(loss, z)))
    errors = []
    for size in (1e-2, 1e-3, 1e-4):
        flow = dynamics.training_flow(loss, module, x, dynamics.Steps(size, 1))
        errors.append(float((flow.velocities[0] - v).norm() / v.norm()))
    assert 8 < errors[0] / errors[1] < 12
    assert 9 < errors[1] / errors[2] < 11


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dynamics.neural_kernel(nn.ReLU(), torch.ones(2, 3)), "has 0, and none"),
        (lambda: dynamics.neural_kernel(nn.Conv2d(1, 1, 1), torch.ones(2, 1, 3, 3)), "3, 3"),
        (
            lambda: dynamics.neural_kernel(
                nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), torch.randn(4, 3)
            ),
            r"layer `1`, BatchNorm1d\(2",
        ),
        (
            lambda: dynamics.kernel_action(
                nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), torch.ones(4, 3), torch.ones(4, 2)
            ),
            r"Dropout\(p=0.5",
        ),
        (lambda: dynamics.neural_kernel(Across(), torch.randn(4, 3)), "outside their batch"),
        (lambda: dynamics.neural_kernel(Chance(), torch.ones(9, 3)), "from one call to the next"),
        (
            lambda: dynamics.kernel_action(Chance(), torch.ones(9, 3), torch.ones(9, 2)),
            "from one call to the next",
        ),
        (
            lambda: dynamics.neural_kernel(nn.Linear(3, 2), torch.full((4, 3), torch.nan)),
            "4 of 4 rows have NaN",
        ),
        (
            lambda: dynamics.neural_kernel(
                nn.Embedding(7, 2, scale_grad_by_freq=True), torch.tensor([0, 0, 1])
            ),
            r"`scale_grad_by_freq`",
        ),
        (
            lambda: dynamics.neural_kernel(nn.Linear(3, 2), torch.ones(4, 3), torch.ones(4, 2)),
            r"shape \(4, 3\); received Tensor of shape \(4, 2\)",
        ),
        (lambda: dynamics.neural_kernel(torch.tanh, torch.ones(4, 3)), "received <built-in"),
        (
            lambda: dynamics.kernel_action(nn.Linear(3, 2), torch.ones(4, 3), torch.ones(4, 3)),
            r"\(4, 2\); received shape \(4, 3\)",
        ),
        (
            lambda: dynamics.velocity(nn.Linear(3, 2), torch.ones(4, 3), lambda z: z),
            r"one number; received shape \(4, 2\)",
        ),
    ],
)
def test_wrong_calls_are_refused_with_numbers(call, words):
    with pytest.raises(InputError, match=words):
        call()
