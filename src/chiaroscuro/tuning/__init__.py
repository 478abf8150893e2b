"""Tuning: random search with asynchronous successive halving, on Optuna or Ray Tune."""

from chiaroscuro.tuning.plot import draw_trials
from chiaroscuro.tuning.result import STATES, SearchResult, Trial, read_result
from chiaroscuro.tuning.search import MEASURES, Search, read_search
from chiaroscuro.tuning.searching import ENGINES, tune
from chiaroscuro.tuning.space import Choice, Distribution, Integers, LogUniform, Uniform, drawn
from chiaroscuro.tuning.trial import online
from chiaroscuro.tuning.with_optuna import goes_on

__all__ = [
    "ENGINES",
    "MEASURES",
    "STATES",
    "Choice",
    "Distribution",
    "Integers",
    "LogUniform",
    "Search",
    "SearchResult",
    "Trial",
    "Uniform",
    "draw_trials",
    "drawn",
    "goes_on",
    "online",
    "read_result",
    "read_search",
    "tune",
]
