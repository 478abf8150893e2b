"""Names of what `evaluate` measures, for tables and pages."""

from __future__ import annotations

__all__ = ["accuracy_name"]

_NAMES = {
    "linear": "accuracy of a ridge classifier",
    "linear_logistic": "accuracy of logistic regression",
    "linear_sgd": "accuracy of a linear classifier, by SGD",
    "zero_shot": "zero-shot accuracy",
    "zero_shot_balanced": "zero-shot accuracy, mean over the classes",
    "map": "mean average precision of search by label",
}


def accuracy_name(key: str) -> str:
    """Return the description of a key of `evaluate`; "" if the key is not an accuracy.

    Example:
        >>> accuracy_name("knn_20"), accuracy_name("few_shot_1"), accuracy_name("d")
        ('accuracy of 20 nearest neighbours', 'accuracy from 1 labelled row per class', '')
        >>> accuracy_name("knn_20_majority")
        'accuracy of 20 nearest neighbours, one vote each'
    """
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith("knn_") and key.endswith("_majority"):
        return f"{accuracy_name(key.removesuffix('_majority'))}, one vote each"
    name, _, count = key.rpartition("_")
    plural = "s" if count != "1" else ""
    if not count.isdigit():
        return ""
    return {
        "knn": f"accuracy of {count} nearest neighbour{plural}",
        "few_shot": f"accuracy from {count} labelled row{plural} per class",
        "recall": f"the label is among those of the {count} nearest",
    }.get(name, "")
