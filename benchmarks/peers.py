"""The peers' losses behind one signature, `(z1, z2, tau) -> scalar`, with what each one equals.

Each docstring states the relation to the published formula, constants included, and where the peer
leaves it. Unless it says otherwise a loss is a mean over all 2n anchors and takes two paired (n, d)
tensors that need not be normalised. `python benchmarks/peers.py` shows that every peer works.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional as F

# ---------------------------------------------------------------------------------------- imports


@cache
def _torchvision() -> torch.library.Library | None:
    """Make `import torchvision` possible beside a CPU build of torch; no loss needs its operators.

    torchvision's compiled half may be linked against CUDA, and then does not load. Its Python half
    tolerates that, except that it describes two operators, nms and qnms, which it expects to exist.
    We declare both, without an implementation: calling one still raises. The declarations last as
    long as the returned object, which is why this function is cached.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None:
        raise ModuleNotFoundError("torchvision is not installed: run `make -C benchmarks`.")
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
    except OSError:
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return declared
    return None


def import_lightly() -> ModuleType:
    """The module `lightly.loss`."""
    _torchvision()
    return importlib.import_module("lightly.loss")


def import_pml() -> ModuleType:
    """The module `pytorch_metric_learning.losses`; it does not need torchvision."""
    return importlib.import_module("pytorch_metric_learning.losses")


def import_open_clip() -> ModuleType:
    """The module `open_clip.loss`."""
    _torchvision()
    return importlib.import_module("open_clip.loss")


# Losses are built once per setting, so that a timing measures the loss and not its constructor.


@cache
def _lightly(name: str, **settings: float) -> torch.nn.Module:
    return getattr(import_lightly(), name)(**settings)


@cache
def _pml(name: str, **settings: float) -> torch.nn.Module:
    return getattr(import_pml(), name)(**settings)


@cache
def _open_clip(name: str) -> torch.nn.Module:
    return getattr(import_open_clip(), name)()


# ---------------------------------------------------------------------------------------- NT-Xent


def textbook_nt_xent(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """NT-Xent as most tutorials write it: normalise, multiply, mask the diagonal, cross-entropy.

    Equals InfoNCE(Cosine(tau), AllButSelf()).

    Wrong, as is every loss here that calls F.normalize, where a row's norm lies outside about
    1e-12 to 1e19 (float32): a short row is divided by 1e-12, so that a zero row receives a gradient
    of order 1e12 and is NaN in float16; a long row's norm overflows and the row becomes zero.
    float16 and bfloat16 inputs give logits rounded to that type, and in float16 overflow where
    1/tau > 65504. Needs several matrices of 2n x 2n.
    """
    n = len(z1)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    itself = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    logits = (z @ z.T / tau).masked_fill(itself, float("-inf"))
    return F.cross_entropy(logits, torch.arange(2 * n, device=z.device).roll(n))


def lightly_nt_xent(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """lightly's NTXentLoss without a memory bank.

    Equals InfoNCE(Cosine(tau), AllButSelf()). Fails where `textbook_nt_xent` does.
    """
    return _lightly("NTXentLoss", temperature=tau)(z1, z2)


def pml_nt_xent(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """pytorch-metric-learning's NTXentLoss, with the index of the pair as its label.

    Equals InfoNCE(Cosine(tau), AllButSelf()) as long as every anchor's loss stays well below the
    -log of the smallest normal number: 87 in float32 and bfloat16, 9.7 in float16, 708 in float64.
    Beyond, it is clipped there and its gradient vanishes. 2/tau + log(2n - 1) < 70 is safe in
    float32, so tau >= 0.05 always is. Fails also where `textbook_nt_xent` does. Needs several
    matrices of 2n x 2n(2n - 2): keep n below 100.
    """
    labels = torch.arange(len(z1), device=z1.device).repeat(2)
    return _pml("NTXentLoss", temperature=tau)(torch.cat([z1, z2]), labels)


def lightly_direct_clr(z1: Tensor, z2: Tensor, tau: float, stop: int) -> Tensor:
    """lightly's DirectCLRLoss: NT-Xent on the first `stop` dimensions, normalised after the cut.

    Equals OnDims(InfoNCE(Cosine(tau), AllButSelf()), 0, stop).
    """
    return _lightly("DirectCLRLoss", loss_dim=stop, temperature=tau)(z1, z2)


def lightly_dcl(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """lightly's DCLLoss, the decoupled loss with no weighting of the positives.

    Equals InfoNCE(Cosine(tau), AllButPair()): all 2n - 2 rows of both views but the anchor and its
    partner are in the denominator. n = 1 gives minus infinity. Fails where `textbook_nt_xent` does.
    DCLWLoss, the weighted variant, multiplies the attraction and has no such equal.
    """
    return _lightly("DCLLoss", temperature=tau)(z1, z2)


# ------------------------------------------------------------------------------------------- CLIP


def torch_cross_entropy_clip(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """CLIP as its paper's pseudocode has it: cross-entropy over rows and over columns, averaged.

    Equals InfoNCE(Cosine(tau), OtherView()).
    """
    logits = F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T / tau
    diagonal = torch.arange(len(z1), device=z1.device)
    return (F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.T, diagonal)) / 2


def open_clip_clip(z1: Tensor, z2: Tensor, tau: float) -> Tensor:
    """open_clip's ClipLoss on one rank, given normalised rows (it does not normalise).

    Equals InfoNCE(Cosine(tau), OtherView()) with logit_scale = 1 / tau.
    """
    return _open_clip("ClipLoss")(F.normalize(z1, dim=1), F.normalize(z2, dim=1), 1 / tau)


# ------------------------------------------------------------------------------- several positives


def pml_supcon(z1: Tensor, z2: Tensor, labels: Tensor, tau: float) -> Tensor:
    """pytorch-metric-learning's SupConLoss on the 2n rows, `labels` holding one class per pair.

    Equals L_out: for each anchor the mean over its positives, the denominator over the
    2n - 1 others, then the mean over anchors whose loss is above zero. So an anchor whose loss
    rounds to zero leaves the mean instead of lowering it: seen at tau = 0.05 with well aligned
    pairs, at 0.02 without; tau >= 0.2 is safe in float32. A batch of a single class gives 0,
    whereas L_out is about log(2n - 1) there. Fails also where `textbook_nt_xent` does.
    """
    return _pml("SupConLoss", temperature=tau)(torch.cat([z1, z2]), labels.repeat(2))


# -------------------------------------------------------------------------------- without negatives


def lightly_vicreg(
    z1: Tensor, z2: Tensor, inv: float = 25.0, var: float = 25.0, cov: float = 1.0
) -> Tensor:
    """lightly's VICRegLoss, which is the authors' code and not quite their equation 6.

    Equals inv/d s + var/2 [v(z1) + v(z2)] + cov [c(z1) + c(z2)] with the paper's terms:
    s = 1/n sum_i |z1_i - z2_i|^2; v(z) = 1/d sum_k max(0, 1 - sqrt(Var_k + 1e-4)); and
    c(z) = 1/d sum_{k != l} C_kl^2. Var and C both divide by n - 1; n = 1 raises.
    """
    loss = _lightly("VICRegLoss", lambda_param=inv, mu_param=var, nu_param=cov)
    return loss(z1, z2)


def lightly_barlow_twins(z1: Tensor, z2: Tensor, weight: float = 5e-3) -> Tensor:
    """lightly's BarlowTwinsLoss, `weight` being the paper's lambda.

    Equals sum_k (1 - C_kk)^2 + weight sum_{k != l} C_kl^2, summed (not averaged) over dimensions,
    with C_kl = Cov(z1_k, z2_l) / sqrt((Var z1_k + 1e-5) (Var z2_l + 1e-5)), where Cov and Var
    divide by n. The paper's equation has no 1e-5 and takes columns as centred. n = 1 raises.
    """
    return _lightly("BarlowTwinsLoss", lambda_param=weight)(z1, z2)


def lightly_negative_cosine(z1: Tensor, z2: Tensor) -> Tensor:
    """lightly's NegativeCosineSimilarity: minus the mean over the n pairs of their cosine.

    BYOL's mean |q/|q| - z/|z||^2 is 2 + 2 times this. One direction, and no stop-gradient: the
    caller detaches z2 and adds the other direction. Norms are clamped at 1e-8.
    """
    return _lightly("NegativeCosineSimilarity")(z1, z2)


def lightly_align_uniform(z1: Tensor, z2: Tensor, t: float = 2.0) -> Tensor:
    """lightly's HypersphereLoss with alpha = 2 and equal weights, on normalised rows u.

    Equals mean_i |u1_i - u2_i|^2 + [U(u1) + U(u2)] / 2, where
    U(u) = log mean_{i < j} exp(-t |u_i - u_j|^2) is taken within one view at a time. lightly's own
    default is t = 1, the paper's is t = 2. n = 1 gives NaN; float16 raises.
    """
    _torchvision()
    module = importlib.import_module("lightly.loss.hypersphere_loss")
    return module.HypersphereLoss(t=t, lam=1.0, alpha=2.0)(z1, z2)


if __name__ == "__main__":
    torch.manual_seed(0)
    a, b = torch.randn(2, 8, 4)
    for peer in (textbook_nt_xent, lightly_nt_xent, pml_nt_xent, lightly_dcl):
        print(f"{peer.__name__:26}{peer(a, b, 0.5).item():.6f}")
    for peer in (torch_cross_entropy_clip, open_clip_clip):
        print(f"{peer.__name__:26}{peer(a, b, 0.5).item():.6f}")
    print(f"{'pml_supcon':26}{pml_supcon(a, b, torch.arange(8) % 4, 0.5).item():.6f}")
    print(f"{'lightly_direct_clr':26}{lightly_direct_clr(a, b, 0.5, stop=2).item():.6f}")
    for peer in (
        lightly_vicreg,
        lightly_barlow_twins,
        lightly_negative_cosine,
        lightly_align_uniform,
    ):
        print(f"{peer.__name__:26}{peer(a, b).item():.6f}")
