"""Labs of cosentino2022: the geometry of encoder and projector.

Letters: the paper's beta is 1/tau; its W (d_enc x d_proj) is the transpose of ours, z = W h, so
that its Ker(W), of vectors that it applies W^T to, is the kernel of ours; tau of its eq. (2) is a
threshold on singular values; h1, h2 are h^(1), h^(2), and h~ is the hardest negative.
"""

__all__: list[str] = []
