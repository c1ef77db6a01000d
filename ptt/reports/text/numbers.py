"""Numbers as a reader sees them: three significant digits, thin units, a real minus sign."""

from __future__ import annotations

import math

MINUS = "−"
THIN = "\u202f"  # narrow no-break space: a number and its unit stay on one line
NO_VALUE = "no value"
NOTHING = 1e-12  # of a share: less is what sums of floats leave of none
QUANTITIES = frozenset(  # what is measured, not what it is measured in: such a word stands before its number
    {"advantage", "coefficient", "correlation", "cosine", "difference of success", "distance from the running median"}
    | {"loss", "norm", "probability", "rank correlation", "reward", "slope", "tau"}
)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e6  # outside, powers of ten are easier to read than zeros


def power_of_ten(exponent: int) -> str:
    """Write 10 to a whole power with superscript digits."""
    return "10" + str(exponent).translate(_SUPERSCRIPT)


def count(value: int) -> str:
    """Write a whole number in groups of three."""
    return f"{value:,}".replace(",", THIN).replace("-", MINUS)


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with so many significant digits; whole numbers are never rounded."""
    if value is None or math.isnan(value):
        return NO_VALUE
    if isinstance(value, int):
        return count(value)
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    size = abs(float(f"{value:.{digits}g}"))
    if size != 0 and not _PLAIN_FROM <= size < _PLAIN_BELOW:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}{THIN}×{THIN}{power_of_ten(int(exponent))}".replace("-", MINUS)
    if size >= 1000:
        return count(round(float(f"{value:.{digits}g}")))
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    text = f"{value:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", MINUS)


def times(value: float | None) -> str:
    """Write a ratio, such as ×5.3."""
    return NO_VALUE if value is None or math.isnan(value) else "×" + number(value)


def percent(share: float | None) -> str:
    """Write a share of one as per cent."""
    if share is None or math.isnan(share):
        return NO_VALUE
    return f"{number(100.0 * share if abs(share) > NOTHING else 0.0)}%"


def bounds(low: float | None, high: float | None) -> str:
    """Write an interval; an end without a value is said."""
    return f"{number(low)} to {number(high)}"


def with_unit(value: float | None, unit: str) -> str:
    """Write a measured value with its unit; the unit `x` means a ratio."""
    if unit in {"x", "×"}:
        return times(value)
    if unit in {"share", "fraction"}:
        return percent(value)
    if unit.startswith(("of ", "share ")):
        return f"{percent(value)} {unit.removeprefix('share ')}"
    if unit in QUANTITIES:
        return f"{unit} {number(value)}"
    text = number(value)
    if text == "1" and unit == "nats":
        unit = "nat"
    return f"{text}{THIN}{unit}" if unit and value is not None else text


def limit_value(value: float, unit: str) -> str:
    """Write a limit beside what it limits, whose words are not said again."""
    if unit.startswith(("of ", "share ")):
        return percent(value)
    return with_unit(value, "" if unit in QUANTITIES else unit)


def p_value(value: float) -> str:
    """Write a p-value; below a thousandth the digits are noise."""
    return "p < 0.001" if value < 0.001 else f"p = {number(value, 2)}"


def counted(how_many: int, noun: str) -> str:
    """Write a number and its noun."""
    return f"{count(how_many)} {noun}" + ("" if how_many == 1 else "s")
