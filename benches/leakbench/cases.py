"""All cases of LeakBench: `LEAKS` look ahead, `CLEAN` do not."""

from case import Case
from clean import CLEAN
from leaks import LEAKS

__all__ = ["CLEAN", "LEAKS", "Case"]
