# %% [markdown]
# # Spectral clustering of a similarity graph
#
# See that contrastive learning is spectral clustering: embed the nodes of a graph by InfoNCE, and
# compare with the eigenvectors of its Laplacian.
#
# A similarity graph has an edge wherever two samples form a positive pair. Minimising InfoNCE with
# a Gaussian kernel over pairs drawn from the graph is a form of spectral clustering of that graph
# ([the paper](../papers/tan2024.md)). Here the graph is planted, so that the answer is known.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import chiaroscuro as cs

graph = cs.graphs.block_model([40] * 6, p=0.75, q=0.02, seed=0)
truth = np.repeat(np.arange(6), 40)
graph

# %% [markdown]
# ## Spectral clustering
#
# The eigenvectors of the normalised Laplacian, then k-means on their rows.

# %%
clusters = cs.graphs.spectral_clustering(graph, 6, seed=0)
print("adjusted Rand index:", round(cs.diagnostics.adjusted_rand(truth, clusters), 3))

# %% [markdown]
# ## The same by InfoNCE
#
# No network: the embedding of each node is a free parameter in the plane, and each step draws a
# batch of edges.

# %%
torch.manual_seed(0)
edges = torch.as_tensor(np.stack(graph.weights.nonzero(), axis=1)).long()
z = torch.nn.Parameter(0.1 * torch.randn(240, 2))
loss = cs.InfoNCE(cs.Gaussian(tau=0.5), cs.AllButSelf())
optimiser = torch.optim.SGD([z], lr=1.0)
history = [z.detach().clone()]
for step in range(1500):
    batch = edges[torch.randint(len(edges), (50,))]
    optimiser.zero_grad()
    loss(z[batch[:, 0]], z[batch[:, 1]]).backward()
    optimiser.step()
    if step + 1 in (100, 1500):
        history.append(z.detach().clone())

# %%
fig, axes = plt.subplots(1, 3, figsize=(10, 3.4))
for ax, points, title in zip(axes, history, ("start", "step 100", "step 1500"), strict=True):
    ax.scatter(*points.T, c=truth, cmap="tab10", s=8)
    ax.set_title(title)

# %%
labels = cs.graphs.kmeans(history[-1].numpy(), 6, seed=0).labels
print("adjusted Rand index:", round(cs.diagnostics.adjusted_rand(truth, labels), 3))
