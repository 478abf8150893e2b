"""Labs of semantic2025: contrastive learners are semantic learners.

Letters: the paper's symbol sigma is the first view, its context rho (with the label y, in Sec. 3)
the second; the embedding function is the table of symbols, rows h_u, and E the context encoder,
rows z_c. sim is the scalar product, `Dot(tau=1)`, and eq. (2) is
`InfoNCE(Dot(tau=1.0), OtherView(), anchors="first")`: a symbol is the anchor, contexts are its
candidates. N is the batch n in a loss, and the number of symbols in a task.
"""

__all__: list[str] = []
