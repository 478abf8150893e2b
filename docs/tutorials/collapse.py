# %% [markdown]
# # Why did my training collapse?
#
# Break a training run on purpose, let the diagnosis find the fault, and apply the fix it suggests.
#
# Collapse is the most common failure of contrastive learning: the loss hardly falls, and all
# embeddings point in nearly the same direction. The loss curve alone does not say why. Here, as
# often in practice, the cause is a projector without normalisation.

# %%
import matplotlib.pyplot as plt
import numpy as np

import chiaroscuro as cs

settings = cs.engine.read_settings(
    "digits", ["epochs=14", "network.projector=\"Projector(d=64, depth=1, last='none')\""]
)
sick = cs.train(settings, "sick")

# %% [markdown]
# ## Diagnose
#
# The most serious finding comes first: its evidence in numbers, the likely cause, the settings to
# change, and what the next diagnosis should show.

# %%
diagnosis = cs.diagnose(sick)
print(diagnosis.verdict, "\n")
for finding in diagnosis.findings[:3]:
    print(f"{finding.severity}: {finding.name}")
    print(f"  evidence  {finding.evidence}")
    print(f"  cause     {finding.cause}")
    print(f"  change    {' '.join(finding.change) or '-'}\n")

# %% [markdown]
# ## Fix
#
# Apply the suggested settings, apart from training longer, and train again; all else is equal.

# %%
advice = [change for finding in diagnosis.findings for change in finding.change]
changes = [change for change in dict.fromkeys(advice) if not change.startswith("epochs")]
print(changes)
healthy = cs.train(cs.engine.read_settings(settings, changes), "healthy")
after = cs.diagnose(healthy)
for name in ("z_mean_cosine", "z_uniformity", "effective_rank", "knn_accuracy"):
    print(f"{name:15} {diagnosis.measures[name]:8.3f} -> {after.measures[name]:8.3f}")

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2))
for name, run in (("broken", sick), ("fixed", healthy)):
    records = [record for record in run.history().records if "epoch" in record]
    axes[0].plot([r["epoch"] for r in records], [r["mean_loss"] for r in records], label=name)
    z = cs.embed(run).z[:500]
    u = z / np.linalg.norm(z, axis=1, keepdims=True)
    axes[1].hist((u @ u.T)[np.triu_indices(len(u), 1)], bins=80, density=True, alpha=0.6)
axes[0].axhline(np.log(2 * 128 - 1), color="grey", linestyle=":", label=r"$\log(2n - 1)$")
axes[0].set(xlabel="epoch", ylabel="loss")
axes[0].legend()
_ = axes[1].set(xlabel="cosine of distinct samples", ylabel="density")

# %% [markdown]
# All findings, and what to do about each: [Findings](../reference/findings.md).
