"""How training moves embeddings: neural kernels, gradient flows, clusters and invariance."""

from chiaroscuro.dynamics.clusters import (
    ClusterMotion,
    cluster_beta,
    cluster_motion,
    cluster_velocity,
    invariance_drift,
    invariance_rate,
)
from chiaroscuro.dynamics.flows import (
    RULES,
    Flow,
    Steps,
    kernel_flow,
    training_flow,
    vanilla_flow,
)
from chiaroscuro.dynamics.kernel import (
    gradient,
    kernel_action,
    kernel_trace,
    neural_kernel,
    velocity,
)
from chiaroscuro.dynamics.one_hidden import OneHidden, limit_kernel, one_hidden_kernel

__all__ = [
    "RULES",
    "ClusterMotion",
    "Flow",
    "OneHidden",
    "Steps",
    "cluster_beta",
    "cluster_motion",
    "cluster_velocity",
    "gradient",
    "invariance_drift",
    "invariance_rate",
    "kernel_action",
    "kernel_flow",
    "kernel_trace",
    "limit_kernel",
    "neural_kernel",
    "one_hidden_kernel",
    "training_flow",
    "vanilla_flow",
    "velocity",
]
