"""Names of what `evaluate` measures, for tables and pages."""

from __future__ import annotations

__all__ = ["accuracy_name"]

_NAMES = {
    "linear": "linear probe accuracy, by ridge regression",
    "linear_logistic": "linear probe accuracy, by logistic regression",
    "linear_sgd": "linear probe accuracy, by SGD",
    "zero_shot": "zero-shot accuracy",
    "zero_shot_balanced": "zero-shot accuracy, averaged over classes",
    "map": "mean average precision of retrieval",
}


def accuracy_name(key: str) -> str:
    """Return the description of a key of `evaluate`; "" if the key is not an accuracy.

    Example:
        >>> accuracy_name("knn_20"), accuracy_name("few_shot_1"), accuracy_name("d")
        ('kNN accuracy, 20 neighbours', 'few-shot accuracy, 1 label per class', '')
        >>> accuracy_name("knn_20_majority")
        'kNN accuracy, 20 neighbours, unweighted'
    """
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith("knn_") and key.endswith("_majority"):
        return f"{accuracy_name(key.removesuffix('_majority'))}, unweighted"
    name, _, count = key.rpartition("_")
    plural = "s" if count != "1" else ""
    if not count.isdigit():
        return ""
    return {
        "knn": f"kNN accuracy, {count} neighbour{plural}",
        "few_shot": f"few-shot accuracy, {count} label{plural} per class",
        "recall": f"recall@{count}: same label among the {count} nearest",
    }.get(name, "")
