# %% [markdown]
# # Words with synonyms
#
# Learn embeddings of symbols from the contexts they appear in, and see that symbols with the same
# meaning end up at the same place.
#
# The task is modular addition: the symbol $a$ together with the context $(b, c)$ is a fact when
# $a + b = c$ modulo $k$. There are more symbols than residues, so that several symbols are
# *synonyms*: no fact tells them apart. Words of a language are the same idea at a larger scale.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import chiaroscuro as cs

N, k, d = 16, 8, 8  # symbols, residues, dimension: symbols s and s + 8 are synonyms
torch.manual_seed(0)
symbols = torch.nn.Embedding(N, d)
contexts = torch.nn.Sequential(torch.nn.Linear(2 * N, 64), torch.nn.ReLU(), torch.nn.Linear(64, d))

# %% [markdown]
# ## The objective
#
# The symbol is the anchor, and the candidates are the contexts of the batch: an InfoNCE of scalar
# products in one direction, without normalisation.

# %%
objective = cs.InfoNCE(cs.Dot(tau=1.0), cs.OtherView(), anchors="first")
parameters = [*symbols.parameters(), *contexts.parameters()]
optimiser = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.1)
one_hot = torch.nn.functional.one_hot
losses = []
for _ in range(2500):
    a, b = torch.randint(N, (2, 64))
    c = (a + b) % k + k * torch.randint(N // k, (64,))
    pair = torch.cat([one_hot(b, N), one_hot(c, N)], dim=1).float()
    loss = objective(symbols(a), contexts(pair))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"loss {np.mean(losses[:50]):.2f} -> {np.mean(losses[-200:]):.2f}")

# %% [markdown]
# ## Synonyms meet
#
# Distances between the embeddings of all symbols, with synonyms side by side: dark blocks of two
# along the diagonal are pairs of synonyms.

# %%
order = [s + k * copy for s in range(k) for copy in range(N // k)]
e = symbols.weight.detach()[order]
distance = torch.cdist(e, e)
plt.figure(figsize=(4.4, 3.8))
plt.imshow(distance.numpy(), cmap="magma")
plt.xticks(range(N), order, fontsize=7)
plt.yticks(range(N), order, fontsize=7)
plt.colorbar(label="distance")

same = distance[torch.arange(0, N, 2), torch.arange(1, N, 2)].mean()
other = distance[~torch.block_diag(*[torch.ones(2, 2)] * k).bool()].mean()
print(f"mean distance of synonyms {same:.2f}, of others {other:.2f}")

# %% [markdown]
# Nothing ever compared two symbols with each other; that they share their contexts was enough. The
# theory, and the same on real prose: [the paper](../papers/semantic2025.md).
