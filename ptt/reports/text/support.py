"""What the tail after tools follows, and where the reference has little mass, in sentences."""

from __future__ import annotations

from ptt.diagnostics.model import CAUSES, Support, SupportMass, SupportShare
from ptt.reports.text.names import SIDES, joined, sentence
from ptt.reports.text.numbers import number, percent
from ptt.reports.text.sanitize import safe

PARTS_OF_COURSE = {
    "text_only": "text-only",
    "familiar": "usual",
    "unfamiliar": "unusual",
    "failed": "failed calls",
}
EXPOSURE = "exposure"  # a share of the tail's growth a token, where the others are shares of the late tail


def support_line(support: Support) -> str:
    """Say in one line what the late tail follows."""
    by_cause = {share.cause: share for share in support.shares}
    if support.follows == "cannot_tell":
        return f"This dump cannot tell what the late tail after tools follows: {_because(support)}."
    clear, unclear = _known(support, clear=True), _known(support, clear=False)
    none_of = joined([_named(share.cause) for share in unclear], last=" or ")
    unclear_words = f"no clear part goes with {none_of}" if unclear else ""
    if support.follows == "none":
        parts = filter(None, (joined([_share(share) for share in clear]), unclear_words))
        return f"The late tail after tools follows none of what was asked about by half: {'; '.join(parts)}."
    if (found := by_cause.get(support.follows)) is None:  # masked: a redacted report
        return ""
    others = joined([_share(share) for share in clear if share is not found])
    what = "growth of the tail a token" if support.follows == EXPOSURE else "late tail after tools"
    return f"{'; '.join(filter(None, (f'The {what} follows {_share(found)}', others, unclear_words)))}."


def what_it_follows(support: Support | None) -> str:
    """Return the line of a summary; empty where nothing was asked, or nothing can be told."""
    return "" if support is None or support.follows == "cannot_tell" else support_line(support)


def support_brief(support: Support) -> list[str]:
    """Say what the tail follows, and what the reference knows of it, or how to record what is missing."""
    told = support.follows != "cannot_tell"
    return [safe(text) for text in (support_line(support), *([_mass(support)] if told else _reasons(support))) if text]


def _reasons(support: Support) -> list[str]:
    return [sentence(reason) for reason in dict.fromkeys(share.reason for share in support.shares) if reason]


def support_sentences(support: Support) -> list[str]:
    """Say what the tail follows, what the reference knows of it, and how the tools' output and its share changed."""
    said = [support_line(support)]
    if support.follows == "cannot_tell" and (known := [*_known(support, clear=True), *_known(support, clear=False)]):
        said.append(f"As far as it goes: {joined([_share(share) for share in known])}.")
    said += _reasons(support)
    said += filter(None, (_mass(support), _outputs(support), _exposure(support), _movement(support)))
    return [safe(text) for text in said]


def _known(support: Support, *, clear: bool) -> list[SupportShare]:
    """Return the shares of the late tail that surely are above 0, or those that may be 0."""
    known = [share for share in support.shares if share.interval is not None]
    known = [share for share in known if share.cause != EXPOSURE or support.follows == EXPOSURE]
    return [share for share in known if (share.interval is not None and share.interval[0] > 0) == clear]


def _named(cause: str) -> str:
    return CAUSES.get(cause, cause)


def _share(share: SupportShare) -> str:
    return f"{_named(share.cause)} {part_of_tail(share)}"


def part_of_tail(share: SupportShare) -> str:
    """Write a share with its interval."""
    low, high = share.interval or (None, None)
    return f"{_percent(share.share)} (95% interval {_percent(low)} to {_percent(high)})"


def _percent(share: float | None) -> str:
    return percent(None if share is None else float(f"{share:.2g}"))


def _because(support: Support) -> str:
    """Say in a few words what is missing; the reasons say how to record it."""
    open_causes = [_named(share.cause) for share in support.shares if share.share is None and share.cause != EXPOSURE]
    if not open_causes:
        return "the intervals are too wide"
    return f"{joined(open_causes)} cannot be set apart"


def late_mass(support: Support, by: str, value: str) -> SupportMass | None:
    """Return the reference's late mass in one part of the tokens."""
    return next((mass for mass in support.masses if (mass.window, mass.by, mass.value) == ("late", by, value)), None)


def _mass(support: Support) -> str:
    other = SIDES.get(support.pair.partition("/")[2], "the other side")
    after, before = late_mass(support, "slice", "post_tool"), late_mass(support, "slice", "text_only")
    if after is None:
        return ""
    text = (
        f"Late in the run {other} gives what the policy says after tools a probability of {number(after.reference, 2)} "
        f"on average"
    )
    if before is not None:
        text += f" (in text {number(before.reference, 2)})"
    parts = [
        f"{number(mass.reference, 2)} after {name}"
        for by, value, name in (
            ("tool result", "failed", "failed calls"),
            ("novelty", "exact", "output seen before"),
            ("novelty", "near", "nearly known output"),
            ("novelty", "unseen", "new output"),
        )
        if (mass := late_mass(support, by, value)) is not None
    ]
    return f"{text}; {joined(parts)}." if parts else f"{text}."


def _outputs(support: Support) -> str:
    by_window = {one.window: one for one in support.outputs}
    if "late" not in by_window:
        return ""
    late, early = by_window["late"], by_window.get("early")
    before = f" (early {_percent(early.unseen)})" if early else ""
    return (
        f"Of the tools' late outputs {_percent(late.exact)} were seen before as a whole and "
        f"{_percent(late.unseen)}{before} are new in most of their n-grams."
    )


def _exposure(support: Support) -> str:
    if support.alpha is None:
        return ""
    early, late = support.alpha
    said = f"Tokens after tools are {_percent(late)} of the policy's tokens late and {_percent(early)} early"
    growth = next((share for share in support.shares if share.cause == EXPOSURE and share.share is not None), None)
    return (
        f"{said}." if growth is None else f"{said}; of the tail's growth a token that explains {part_of_tail(growth)}."
    )


def _movement(support: Support) -> str:
    if support.change is None or support.change_interval is None:
        return ""
    low, high = (number(end, 2) for end in support.change_interval)
    what = f"mean |r| there is ×{number(support.change, 2)} ({low} to {high}) from the middle to the late third"
    words = {
        "moves": f"The policy still moves after tools: {what}.",
        "frozen": f"The policy hardly moves after tools any more: {what}.",
    }
    return words.get(support.changes, f"Whether the policy still moves after tools cannot be told: {what}.")
