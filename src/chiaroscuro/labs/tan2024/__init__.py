"""Labs of tan2024: contrastive learning is spectral clustering on the similarity graph.

Letters: the paper's Z are the rows of z, K_Z is the Gram matrix K, n objects are the n nodes of the
graph; tau of eq. (7) is tau of `Exponential(gamma, tau)`, at gamma = 2 twice that of `Gaussian`.
"""

__all__: list[str] = []
