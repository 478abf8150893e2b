"""Libraries that only some sources need: imported when used, with a sentence where missing."""

from chiaroscuro.extras import bring

__all__ = ["bring"]
