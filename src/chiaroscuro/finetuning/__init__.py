"""Fine-tune a network on labels: did pretraining help?"""

from chiaroscuro.finetuning.comparing import Finetuned, FinetuneSettings, finetune
from chiaroscuro.finetuning.layers import layers_of, rate_groups
from chiaroscuro.finetuning.supervised import Classifier

__all__ = [
    "Classifier",
    "FinetuneSettings",
    "Finetuned",
    "finetune",
    "layers_of",
    "rate_groups",
]
