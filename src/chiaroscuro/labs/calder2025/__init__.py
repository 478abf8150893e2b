"""Labs of calder2025: the variational analysis of SimCLR, and how networks train on it.

Letters: the paper's map f is encoder and projector together, its values are z; Psi and eta are psi
and eta; the number of atoms and of clusters, K and N there, is n_atoms and n_clusters (K is a Gram
matrix here); the width M is `width`; the step sigma of gradient descent is `lr`.
"""

__all__: list[str] = []
