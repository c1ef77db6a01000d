"""The version of ptt, in the one place that every room may import."""

from typing import Final

__version__: Final = "0.1.0"
