"""Kernels: how alike two embeddings are, as log k(z, w). One class per file."""

from chiaroscuro.kernels.adaptive import Adaptive
from chiaroscuro.kernels.balanced import Balanced
from chiaroscuro.kernels.cauchy import Cauchy
from chiaroscuro.kernels.concat import Concat
from chiaroscuro.kernels.cosine import Cosine
from chiaroscuro.kernels.dot import Dot
from chiaroscuro.kernels.exponential import Exponential
from chiaroscuro.kernels.gaussian import Gaussian
from chiaroscuro.kernels.kernel import Kernel, Leaf, Part
from chiaroscuro.kernels.laplace import Laplace
from chiaroscuro.kernels.lp import Lp
from chiaroscuro.kernels.student_t import StudentT
from chiaroscuro.kernels.sum import Sum
from chiaroscuro.kernels.temperature import Learnable

__all__ = [
    "Adaptive",
    "Balanced",
    "Cauchy",
    "Concat",
    "Cosine",
    "Dot",
    "Exponential",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Leaf",
    "Learnable",
    "Lp",
    "Part",
    "StudentT",
    "Sum",
]
