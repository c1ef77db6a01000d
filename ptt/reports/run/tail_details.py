"""What stands behind the tail, in words and tables: how heavy it is, guards, who holds it, what to read, staleness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.panels import DataTable
from ptt.reports.text.names import BY, GUARDS, sentence, slice_name
from ptt.reports.text.numbers import bounds, count, counted, number, percent, times
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.support import PARTS_OF_COURSE, support_sentences
from ptt.reports.text.tables import Row, pair_of, rows_where, table
from ptt.reports.text.why import after_slice

MAX_NAME = 60  # letters of a name in a table
DASH = "—"
SLICES_SHOWN = ("post_tool", "post_observation", "text_only")

Column = tuple[str, str, Callable[..., str]]  # head, column of the diagnosis' table, how its value is written


@dataclass(frozen=True, kw_only=True)
class Part:
    """One question behind the tail: a sentence that answers it and the tables it comes from."""

    key: str
    title: str
    sentence: str
    tables: tuple[DataTable, ...]


def details(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Return the parts the run holds numbers for; none where there are no tails."""
    return tuple(part for make in PARTS if (part := make(diagnosis)) is not None)


def _data_table(title: str, rows: Iterable[Row], columns: Sequence[Column]) -> DataTable:
    cells = tuple(tuple(write(row[name]) for _, name, write in columns) for row in rows)
    return DataTable(title=title, head=tuple(head for head, _, _ in columns), rows=cells)


def _or_dash(write: Callable[..., str]) -> Callable[[Any], str]:
    return lambda value: DASH if value is None else write(value)


_two_digits = partial(number, digits=2)
_foreign_name = _or_dash(lambda text: shortened(safe(text), MAX_NAME))  # a name that the run gave


def _notes_on(diagnosis: Diagnosis, name: str) -> list[str]:
    """Say what table `name` leaves out, and why."""
    return [sentence(row["reason"]) for row in rows_where(diagnosis, "details_notes", table=name)]


def _with_interval(row: Row, name: str, write: Callable[[float | None], str]) -> str:
    low, high = row[f"{name}_lo"], row[f"{name}_hi"]
    known = low is not None and high is not None
    return f"{write(row[name])} ({f'{write(low)} to {write(high)}' if known else 'no interval'})"


REFERENCE_PAIRS = ("policy/ref", "old/ref", "prox/ref")
EFFECTS: Sequence[Column] = (
    ("Tokens hit", "hit", percent),
    ("ESS/n", "ess_fraction", _two_digits),
    ("E[w²]", "second_moment", number),
    ("bias", "bias", _or_dash(_two_digits)),
)


def guards(diagnosis: Diagnosis) -> Part | None:
    """Say what the usual guards would have hit in the late third, and what they would have cost."""
    rows = rows_where(diagnosis, "counterfactual")
    if not rows:
        return None
    known = list(GUARDS)
    rows.sort(key=lambda row: (known.index(row["guard"]) if row["guard"] in known else len(known), row["slice"]))
    late: dict[str, dict[str, Row]] = {}  # by guard, then by slice
    for row in rows:
        if row["window"] == "late":
            late.setdefault(row["guard"], {}).setdefault(row["slice"], row)
    names = [name for name in SLICES_SHOWN if any(name in of_guard for of_guard in late.values())]
    pair = safe(rows[0]["pair"])
    sentences = [f"Replayed on the recorded ratios of {pair}, late third."]
    for name in names:
        before, after = (late.get(guard, {}).get(name) for guard in ("none", "tis-2"))
        if before and after:
            sentences.append(
                f"{GUARDS['tis-2']} would cut the weights of {percent(after['hit'])} of the {slice_name(name)} tokens "
                f"and take ESS/n from {_two_digits(before['ess_fraction'])} to {_two_digits(after['ess_fraction'])}."
            )
    if pair in REFERENCE_PAIRS:
        sentences.append(
            "Trainers guard policy/rollout or old/rollout, which this run does not record. The "
            f"table shows a guard on {pair} instead."
        )
    sentences.append(
        "Hit is the share of tokens whose weight changes. ESS/n counts masked tokens in n. Bias is how "
        "much the mean weight, cut at 10, loses."
    )
    heads = [(f"{slice_name(name).capitalize()}: hit", *(head for head, _, _ in EFFECTS[1:])) for name in names]
    cells = tuple(
        (_guard_name(guard), *(cell for name in names for cell in _effects(of_guard.get(name))))
        for guard, of_guard in late.items()
    )
    whole: Sequence[Column] = (
        ("Window", "window", safe), ("Guard", "guard", _guard_name), ("Slice", "slice", slice_name), *EFFECTS,
        ("Mass removed", "mass_removed", percent), ("Tokens", "n", count),
    )  # fmt: skip
    tables = (
        DataTable(title="Guards, late third", head=("Guard", *sum(heads, ())), rows=cells),
        _data_table("Guards by window", rows, whole),
    )
    return Part(key="guards", title="What guards would have done", sentence=" ".join(sentences), tables=tables)


def _effects(row: Row | None) -> tuple[str, ...]:
    return tuple(DASH if row is None else write(row[name]) for _, name, write in EFFECTS)


def _guard_name(name: str) -> str:
    return GUARDS.get(name) or safe(name)


LEVELS = {"token": "token", "sequence": "sequence", "sequence mean": "sequence, length-normalised"}
FACTORS = (2, 5, 10, 100)  # beyond which tokens are counted
PERCENTILES = {"p95": "p95", "p99": "p99", "p999": "p99.9"}
WEIGHTS: Sequence[Column] = (
    ("Slice", "slice", slice_name),
    ("Level", "level", lambda level: LEVELS.get(level) or safe(level)),
    ("Weights", "weights", safe),
    ("k-hat", "k_hat", _or_dash(_two_digits)),
    ("Threshold", "threshold", _or_dash(_two_digits)),
)
COUNTED: Sequence[Column] = (("ESS/n", "ess_fraction", _two_digits), ("Weights counted", "n", count))


def heaviness(diagnosis: Diagnosis) -> Part | None:
    """Return whether means of the weights can be trusted, and how far out the tokens lie."""
    rows = rows_where(diagnosis, "heaviness")
    if not rows:
        return None
    pair, after = pair_of(diagnosis), slice_name(after_slice(diagnosis))
    late = [row | {"means": _trusted(row)} for row in rows if row["window"] == "late"]
    wanted = (*((name, "token", pair) for name in SLICES_SHOWN), ("all", "sequence", pair))
    sentences = [
        _k_hat(row, pair) for key in wanted for row in late if (row["slice"], row["level"], row["weights"]) == key
    ]
    ratios, extremes = rows_where(diagnosis, "tail_ratios"), rows_where(diagnosis, "extremes")
    for row in (*ratios, *extremes):
        shown = {"ratio": times} if "ratio" in row else {"p999": number} | {f"above_{x}": percent for x in FACTORS}
        row.update({f"{name}_shown": _with_interval(row, name, write) for name, write in shown.items()})
    sentences += [
        f"Late {after} p99 of |r| is {row['ratio_shown']} that of text-only."
        for row in ratios
        if (row["window"], row["percentile"]) == ("late", "p99")
    ]
    sentences.append(
        "k-hat is the shape of a Pareto tail fitted to the largest weights. Above its threshold a mean "
        "of weights, and so ESS, E[w²] and KL estimates, can depend on rare tokens that the sample happens to miss."
    )
    moment: Column = ("E[w²]", "second_moment", _moment)
    chi2 = (moment, ("E[w²] − 1", "chi2", _moment), ("E[w²]/E[w]² − 1", "chi2_normalised", _moment))
    window: Column = ("Window", "window", safe)
    beyond = [(f"Beyond ×{factor}", f"above_{factor}_shown", str) for factor in FACTORS]
    over = after.capitalize()
    percentile: Column = ("Percentile of |r|", "percentile", lambda name: PERCENTILES.get(name) or safe(name))
    further = (
        _data_table(
            "Tokens whose ratio exceeds a factor, in either direction",
            extremes,
            (window, WEIGHTS[0], ("p99.9 of |r|", "p999_shown", str), *beyond, ("Tokens", "n", count)),
        ),
        _data_table(
            f"{over} percentiles over text-only",
            ratios,
            (
                *(window, percentile, ("Text-only", "text", number), (over, "post", number)),
                (f"{over} over text-only", "ratio_shown", str),
            ),
        ),
    )
    tables = (
        _data_table("Pareto k-hat, late third", late, (*WEIGHTS, ("Means", "means", str), moment, *COUNTED)),
        *(made for made in further if made.rows),
        _data_table("Heaviness by window", rows, (window, *WEIGHTS, *chi2, *COUNTED)),
    )
    shown_tables = tuple(made for made in tables if made.rows)
    return Part(key="heaviness", title="How heavy the tails are", sentence=" ".join(sentences), tables=shown_tables)


def _k_hat(row: Row, pair: str) -> str:
    of = "Late sequence weights" if row["level"] != "token" else f"Late {slice_name(row['slice'])} token weights"
    if row["k_hat"] is None:
        return f"{of} ({pair}): k-hat not judged, {safe(row['reason'])}."
    value, limit = _two_digits(row["k_hat"]), _two_digits(row["threshold"])
    if row["k_hat"] > row["threshold"]:
        return f"{of} ({pair}): k-hat {value}, above the {limit} beyond which means of weights cannot be trusted."
    return f"{of} ({pair}): k-hat {value}, not above the {limit} up to which means of weights can be trusted."


def _trusted(row: Row) -> str:
    if row["k_hat"] is None:
        return f"not judged: {safe(row['reason'])}"
    return "not to be trusted" if row["k_hat"] > row["threshold"] else "can be trusted"


def _moment(value: float | None) -> str:
    return "beyond e⁶⁰⁰" if value is None else number(value)


MAX_VALUES = 14
MIN_LIFT = 1.05
MAX_OF_A_KIND = 4  # prompt groups are many, and would fill the table alone
MIN_SEQUENCES = 8  # of fewer, the lift is chance
LIFT_FACTOR = 1.5  # times the lift of its slice: below, a position says no more than the slice does
MIN_TAIL_SHARE = 0.05  # a smaller part is no answer
POSITIONS = ("distance", "turn", "tool name", "tool result")
TOP = "top sequences"
SHARES: Sequence[Column] = (
    ("By", "by", lambda by: BY.get(by) or safe(by)),
    ("Value", "value_shown", str),
    ("Lift", "lift", times),
    ("Of the tail", "tail_share", percent),
    ("Of the tokens", "token_share", percent),
    ("Tail tokens", "tail", count),
    ("Sequences", "n_sequences", count),
)


def holders(diagnosis: Diagnosis) -> Part | None:
    """Say whose the late tail is."""
    frame = table(diagnosis, "attribution")
    if frame is None or not frame["tail"].sum():
        return None
    of_slice = frame.filter(by="slice").sort("tail", descending=True).to_dicts()
    tail = sum(row["tail"] for row in of_slice)
    sentences = [f"The late tail is {count(tail)} tokens with |r| of {number(frame['limit'][0])} nats or more."]
    sentences += [
        f"{_foreign_name(slice_name(row['value'])).capitalize()} tokens make up {percent(row['tail_share'])} of it and "
        f"{percent(row['token_share'])} of the tokens."
        for row in of_slice[:1]
    ]
    sentences += [
        f"The {_foreign_name(row['value'])} of sequences with most of it make up {percent(row['tail_share'])}."
        for row in frame.filter(by=TOP, value="1 %").to_dicts()
    ]
    # the position in a sequence that stands out most from its slice
    usual = max((row["lift"] or 0.0 for row in of_slice), default=0.0)
    positions = frame.filter(
        pl.col("by").is_in(POSITIONS), ~pl.col("rest"), pl.col("value").is_not_null(),
        pl.col("tail_sequences") >= MIN_SEQUENCES, pl.col("tail_share") >= MIN_TAIL_SHARE,
        pl.col("lift") >= LIFT_FACTOR * usual,
    ).sort("lift", "tail", descending=True, maintain_order=True)  # fmt: skip
    sentences += [
        f"By place, {BY[row['by']]} {_holder(row)} matters most: {percent(row['tail_share'])} of it and "
        f"{percent(row['token_share'])} of the tokens (lift {times(row['lift'])})."
        for row in positions.head(1).to_dicts()
    ]
    listed = frame.filter((pl.col("by") != TOP) & ~pl.col("rest") & (pl.col("n_sequences") >= MIN_SEQUENCES))
    lifted = listed.filter(pl.col("lift") > MIN_LIFT).sort("lift", "tail", descending=True, maintain_order=True)
    lifted = lifted.group_by("by", maintain_order=True).head(MAX_OF_A_KIND).sort("lift", "tail", descending=True)
    sentences.append(
        f"Lift is share of the tail over share of the tokens; below, what lies above {MIN_LIFT} in at least "
        f"{MIN_SEQUENCES} sequences, at most {MAX_OF_A_KIND} of a kind."
    )
    sentences += _notes_on(diagnosis, "attribution")
    tables = tuple(
        _data_table(
            title,
            [row | {"value_shown": "all others" if row["rest"] else _holder(row)} for row in rows.to_dicts()],
            SHARES,
        )
        for title, rows in (
            ("Highest lift", lifted.head(MAX_VALUES)),
            ("Everything by which the tail was split", frame),
        )
    )
    return Part(key="holders", title="Where the late tail is", sentence=" ".join(sentences), tables=tables)


def _holder(row: Row) -> str:
    by, value = row["by"], row["value"]
    if value is None:
        return "not recorded"
    if by in POSITIONS and value == "none":
        return "before any"
    return slice_name(value) if by == "slice" else _foreign_name(value)


UNKNOWN = "unknown"
LAGS: Sequence[Column] = (
    ("Slice", "slice", slice_name),
    ("Lag", "lag", safe),
    ("p95 of |r|", "p95", _two_digits),
    ("p99 of |r|", "p99", _two_digits),
    ("Of the slice", "share", percent),
    ("Tokens", "n", count),
    ("Sequences", "n_sequences", count),
)


def staleness(diagnosis: Diagnosis) -> Part | None:
    """Return whether tails are longer where rollouts are older."""
    rows = rows_where(diagnosis, "staleness")
    if not rows:
        return None
    sentences = []
    for name in dict.fromkeys(row["slice"] for row in rows):
        known = [row for row in rows if row["slice"] == name and row["lag"] != UNKNOWN]
        if not known or known[0]["slope"] is None:
            continue
        first, last = known[0], known[-1]
        low, high = (None if end is None else math.exp(end) for end in (first["slope_lo"], first["slope_hi"]))
        sentences.append(
            f"{slice_name(name).capitalize()} p99 of |r| (pair {pair_of(diagnosis)}) is "
            f"{_two_digits(first['p99'])} at lag {first['lag']} and {_two_digits(last['p99'])} at lag {last['lag']}: "
            f"{times(math.exp(first['slope']))} for each doubling of 1 + lag "
            f"(95% interval {bounds(low, high)})."
        )
    unknown = sum(row["n"] for row in rows if row["lag"] == UNKNOWN) / max(1, sum(row["n"] for row in rows))
    sentences.append(f"The version is unknown for {percent(unknown)} of the tokens.")
    sentences.append(
        "Lag counts versions behind the freshest sequence (step minus version is "
        f"{count(rows[0]['offset'])} there); percentiles are known to a quarter. Lag and training time may "
        "go together: this proves no cause."
    )
    tables = (_data_table("Tails by lag", rows, LAGS),)
    return Part(key="staleness", title="Tails and the age of rollouts", sentence=" ".join(sentences), tables=tables)


MAX_SEQUENCES = 10
FILE: Column = ("File", "path", _foreign_name)
ROW: Column = ("Row", "row", count)
SEQUENCES: Sequence[Column] = (
    FILE,
    ROW,
    ("Step", "step", count),
    ("Sample", "sample_id", _foreign_name),
    ("Group", "group_id", _foreign_name),
    ("Tail tokens", "tail", count),
    ("Tokens", "tokens", count),
    ("Largest |r|", "max_abs_r", number),
    ("At token", "max_at", _or_dash(count)),
    ("Observations before", "max_turn", _or_dash(count)),
    ("Reward", "reward", _or_dash(number)),
)


def worst(diagnosis: Diagnosis) -> Part | None:
    """Name the sequences with most tail tokens, by file and row."""
    rows = rows_where(diagnosis, "top_sequences")[:MAX_SEQUENCES]
    if not rows:
        return None
    first, share = rows[0], percent(float(sum(row["tail_share"] for row in rows)))
    where = f"row {count(first['row'])} of {_foreign_name(first['path'])}" if first["path"] is not None else "no file"
    noun = "sequences" if len(rows) > 1 else "sequence"
    summary = (
        f"The {count(len(rows))} {noun} with most tail tokens make up {share} of the tail; the first is {where} "
        f"(step {count(first['step'])}, largest |r| {number(first['max_abs_r'])}). Rows and tokens count from 0."
    )
    if (row := first.get("step_row")) is not None:  # what an earlier version kept has none
        summary += f" ptt show RUN {first['step']}:{row} prints it, token by token."
    texts = [row for row in rows if row["text"] is not None]
    tables = [_data_table("Sequences with most tail tokens", rows, SEQUENCES)]
    if texts:
        tables.append(_data_table("What was said at the largest |r|", texts, (FILE, ROW, ("Text", "text", safe))))
    said = " ".join([summary, *_notes_on(diagnosis, "top_sequences")])
    return Part(key="worst", title="Sequences to read first", sentence=said, tables=tuple(tables))


KNOWN_OUTPUT = {"exact": "seen before", "near": "nearly known", "unseen": "new"}
SUPPORT_BY = {"novelty": "output before it", "confidence": "the policy's probability"}
MASSES: Sequence[Column] = (
    ("By", "by", lambda by: SUPPORT_BY.get(by) or BY.get(by) or safe(by)),
    ("Value", "value", lambda value: KNOWN_OUTPUT.get(value) or slice_name(value)),
    ("Window", "window", str),
    ("Tokens", "tokens", count),
    ("Groups", "groups", count),
    ("Probability: policy", "policy", _two_digits),
    ("other side", "reference", _two_digits),
    ("its interval", "reference_interval", lambda ends: bounds(*ends)),
    ("Below 1% there", "unsupported", percent),
    ("Of the tail", "tail_share", percent),
)
OUTPUTS: Sequence[Column] = (
    ("Window", "window", str),
    ("Outputs", "outputs", count),
    ("Distinct", "distinct", count),
    ("Seen before", "exact", percent),
    ("Nearly known", "near", percent),
    ("New", "unseen", percent),
    ("Familiarity", "familiarity", _two_digits),
)
COURSE: Sequence[Column] = (
    ("Steps from", "step_first", count),
    ("to", "step_last", count),
    ("Tokens after tools", "alpha", percent),
    *((name, column, _or_dash(_two_digits)) for column, name in PARTS_OF_COURSE.items()),
)


def support(diagnosis: Diagnosis) -> Part | None:
    """Say what the tail follows, and how much mass the reference has where the policy goes."""
    found = diagnosis.support
    if found is None:
        return None
    late_first = sorted(found.masses, key=lambda mass: mass.window != "late")
    said = [
        *support_sentences(found),
        f"Read again: {counted(found.steps, 'step')} with {count(found.tokens)} tokens. The tail is |r| beyond 0.69 "
        "nats. A share is the part that would be gone if the thing were as it is where it is least, beside the others.",
    ]
    tables = [_data_table("What the other side of the pair gives", map(asdict, late_first), MASSES)]
    if found.outputs:
        tables.append(_data_table("How new the tools' outputs were", map(asdict, found.outputs), OUTPUTS))
    if course := rows_where(diagnosis, "support_course"):
        tables.append(_data_table("Tail a token over the run, in nats", course, COURSE))
    return Part(key="support", title="What the tail follows", sentence=" ".join(said), tables=tuple(tables))


PARTS = (support, heaviness, guards, holders, worst, staleness)
