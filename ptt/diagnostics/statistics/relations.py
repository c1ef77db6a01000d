"""Relations between logged numbers, and how far rounding alone can put them off.

A relation is text such as `ratio >= exp(-gap) where gap <= 1`. It is evaluated on arrays of one value a step. Every
number is known to within half of its last digit; what that does to each side is found by moving each symbol by so much,
one after the other, and adding up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray

Sign = Literal[">=", "<=", "=="]
MAX_DECIMALS: Final = 6  # with more, a number is as its type holds it
MIN_DIGITS: Final = 3  # fewer significant digits are taken for round numbers, not for rounded ones
MAX_DIGITS: Final = 6
SINGLE: Final = 1e-6  # relative: single precision, and sums over tokens in it
INTEGER_FROM: Final = 10.0  # whole numbers below it are counts; larger ones may be rounded lengths
TYPES: Final = {8: 2.0**-8, 11: 2.0**-11}  # bits of the mantissa of bfloat16 and half: half of their spacing
MIN_TYPED: Final = 8  # distinct values that all fit a short mantissa: no accident
EXACT: Final = 1e-9
EARLY: Final = 20  # values that show what a metric is, before a later one can contradict them
SURE: Final = 1e-6  # a premise `==` holds where the values agree to this


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Two expressions and the sign between them, at the steps that fulfil the premises."""

    left: str
    sign: Sign
    right: str
    where: tuple[Relation, ...] = ()

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of both sides and of the premises."""
        own = symbols_of(self.left) | symbols_of(self.right)
        return own.union(*(premise.symbols for premise in self.where))


@lru_cache(maxsize=512)
def parse_relation(text: str) -> Relation:
    """Read a relation; raises ValueError for what is none."""
    said, _, where = text.partition(" where ")
    parts = re.split(r"\s*(>=|<=|==)\s*", said.strip())
    if len(parts) != 3:
        raise ValueError(f"{text!r}: one of >=, <= and == is needed between two expressions")
    left, sign, right = parts
    premises = tuple(parse_relation(part) for part in where.split(" and ")) if where else ()
    symbols_of(left), symbols_of(right)
    return Relation(left=left, sign=sign, right=right, where=premises)  # type: ignore[arg-type]


def _rise(values: FloatArray) -> FloatArray:
    return np.concatenate([[np.nan], np.diff(values)]) if np.ndim(values) else np.full(1, np.nan)


def _first(values: FloatArray) -> FloatArray:
    return np.full_like(values, values[0])


def _median(values: FloatArray) -> FloatArray:
    return np.full_like(values, np.nanmedian(values) if np.isfinite(values).any() else np.nan)


def _early(values: FloatArray) -> FloatArray:
    return np.full_like(values, values[:EARLY].min() if len(values) > EARLY else np.nan)


FUNCTIONS: Final[Mapping[str, Callable[..., FloatArray]]] = {
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "min": np.minimum,
    "max": np.maximum,
    "round": np.round,
    "rise": _rise,
    "first": _first,
    "median": _median,
    "early": _early,
}
OPERATORS: Final[Mapping[type[ast.operator], Callable[[FloatArray, FloatArray], FloatArray]]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}


@lru_cache(maxsize=512)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@lru_cache(maxsize=512)
def symbols_of(expression: str) -> frozenset[str]:
    """Return the symbols of an expression."""
    names = {node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)}
    return frozenset(names - FUNCTIONS.keys())


def evaluate(expression: str, values: Mapping[str, FloatArray]) -> FloatArray:
    """Evaluate an expression on arrays of one length; NaN where it has no value."""
    length = max((len(array) for array in values.values()), default=1)
    with np.errstate(all="ignore"):
        return np.broadcast_to(_value(_parsed(expression), values), (length,)).astype(np.float64)


def _value(node: ast.expr, values: Mapping[str, FloatArray]) -> FloatArray:
    match node:
        case ast.Constant(value=int() | float() as number):
            length = max((len(array) for array in values.values()), default=1)
            return np.full(length, float(number))
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*(_value(arg, values) for arg in args))
    raise ValueError(f"{ast.unparse(node)}: not a number, a symbol, a sum, a product or a known function")


def rounding_of(values: FloatArray) -> FloatArray:
    """Return by how much each value may be off, from the digits that the values are written with; values are finite."""
    size = np.abs(values)
    off = SINGLE * size
    if not len(values):
        return off
    for bits, share in TYPES.items():
        mantissa = np.ldexp(np.frexp(values)[0], bits)
        if len(np.unique(values)) >= MIN_TYPED and (mantissa == np.round(mantissa)).all():
            off = np.maximum(off, share * size)
            break
    whole = bool((values == np.round(values)).all())
    if whole and size.max() < INTEGER_FROM:
        return off
    for decimals in range(MAX_DECIMALS + 1):
        if _is_whole(values * 10.0**decimals):
            off = np.maximum(off, 0.5 * 10.0**-decimals)
            break
    powers = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    for digits in range(MIN_DIGITS, MAX_DIGITS + 1):
        unit = 10.0 ** (powers - digits + 1)
        if _is_whole(values / unit):
            return np.maximum(off, np.where(size > 0, 0.5 * unit, 0.0))
    return off


def _is_whole(values: FloatArray) -> bool:
    whole = np.round(values)
    near = np.abs(values - whole) <= EXACT * np.maximum(1.0, np.abs(values))
    return bool((near & ((whole != 0) | (values == 0))).all())  # a value far below 1 is not the whole number 0


def uncertainty(expression: str, values: Mapping[str, FloatArray], roundings: Mapping[str, FloatArray]) -> FloatArray:
    """Return by how much rounding may put an expression off at each step.

    Neighbouring values are moved in opposite ways, so that a difference of two steps is off by both.
    """
    centre = evaluate(expression, values)
    total = np.zeros_like(centre)
    for symbol in sorted(symbols_of(expression) & roundings.keys()):
        off = roundings[symbol] * np.where(np.arange(len(centre)) % 2, -1.0, 1.0)
        moved = [evaluate(expression, {**values, symbol: values[symbol] + way * off}) for way in (1, -1)]
        gaps = np.abs(np.stack(moved) - centre)
        total += np.where(np.isfinite(gaps), gaps, 0.0).max(axis=0)
    return total


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A relation at each step, (n,)."""

    left: FloatArray
    right: FloatArray
    excess: FloatArray  # by how much it is broken, before any tolerance; NaN where it was not compared
    rounding: FloatArray  # by how much rounding may put it off


def compare(relation: Relation, values: Mapping[str, FloatArray], roundings: Mapping[str, FloatArray]) -> Compared:
    """Hold values against a relation at each step that surely fulfils its premises."""
    left, right = evaluate(relation.left, values), evaluate(relation.right, values)
    difference = {">=": right - left, "<=": left - right, "==": np.abs(left - right)}[relation.sign]
    rounding = uncertainty(f"({relation.left}) - ({relation.right})", values, roundings)
    holds = np.isfinite(difference)
    for premise in relation.where:
        holds &= _surely(premise, values, roundings)
    return Compared(left=left, right=right, excess=np.where(holds, difference, np.nan), rounding=rounding)


def _surely(premise: Relation, values: Mapping[str, FloatArray], roundings: Mapping[str, FloatArray]) -> BoolArray:
    """Return at which steps a premise holds; an inequality must hold whatever rounding did."""
    left, right = evaluate(premise.left, values), evaluate(premise.right, values)
    if premise.sign == "==":
        return np.isfinite(left - right) & (np.abs(left - right) <= SURE)
    margin = left - right if premise.sign == ">=" else right - left
    off = uncertainty(f"({premise.left}) - ({premise.right})", values, roundings)
    return np.isfinite(margin) & (margin >= off)


def worst_stretch(broken: BoolArray) -> tuple[int, int, int]:
    """Return first and last index of the stretch where broken steps outnumber the others most, and by how many."""
    scores = np.concatenate([[0], np.cumsum(np.where(broken, 1, -1))])
    lowest = np.minimum.accumulate(scores[:-1])
    gains = scores[1:] - lowest
    end = int(np.argmax(gains))
    start = int(np.flatnonzero(scores[: end + 1] == lowest[end])[-1])
    return start, end, int(gains[end])
