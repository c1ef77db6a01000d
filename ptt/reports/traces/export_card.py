"""The quality card of exported training data: quality.json, quality.md, and the lines of the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.traces.exports.quality import Card, ClusteredMean, ExportReport
from ptt.reports.output import finite_json
from ptt.reports.text.numbers import count, counted, number, percent

SCHEMA_VERSION: Final = 1
REASONS: Final = {
    "unreadable": "messages unreadable",
    "unknown_role": "a role that chat templates do not know",
    "no_prompt": "nobody asked anything",
    "no_assistant_turn": "no turn of the assistant",
    "empty_completion": "the assistant said nothing",
    "conversation_in_a_text": "a whole conversation kept as the text of one message",
    "rendered_completion": "markers of a chat template in what the assistant wrote",
    "tool_output_in_text": "results of tools inside what the assistant wrote, where no mask parts them",
    "unlabelled": "neither success nor reward known",
    "contradictory_label": "the same completion succeeded and failed",
    "contradictory_turn": "turns that both succeeding and failing attempts took",
    "beyond_turns": "turns beyond the 256th of an episode",
    "duplicate": "duplicate",
    "near_duplicate": "near-duplicate",
    "beyond_drawn_attempts": "more attempts at the prompt than pairs are sought among",
    "reward_contradicts_success": "pairs whose reward contradicts their success",
    "masked": "a key or token is masked",
    "below_margin": "pairs below the margin",
    "length_unmatched": "pairs of unequal length",
    "too_few_attempts": "pairs whose sides rest on too few attempts",
    "over_cap": "pairs beyond the cap of a prompt",
    "outcomes_do_not_differ": "turns with equal outcomes",
    "parted_in_the_environment": "attempts parted by what the environment said",
    "reward_is_the_mean": "reward equal to the prompt's mean",
    "not_successful": "not successful",
    "prompts_with_one_attempt": "prompts with one attempt",
    "prompts_without_contrast": "prompts without both outcomes",
    "prompts_outside_the_tail": "prompts without an episode among those with most tail tokens",
}
PAIRED: Final = ("pairs", "steps")
LEANING: Final = 0.1  # of the share of longer chosen sides from a half: from there the length is a shortcut


def card_json(report: ExportReport, version: str) -> str:
    """Return quality.json."""
    return finite_json(
        {
            "schema_version": SCHEMA_VERSION,
            "ptt_version": version,
            "episodes": report.episodes,
            "unusable": _counted(report.unusable),
            "trimmed_after_last_turn": report.trimmed,
            "merged_messages": report.merged,
            "masked": {"episodes": report.masked, "texts": report.masked_texts},
            "tasks_repeated_from_other_prompts": report.reworded_tasks,
            "prompts": {
                "all": report.prompts,
                "labelled": report.labelled_prompts,
                "with_both_outcomes": report.contrasted_prompts,
            },
            "eval_set": None
            if report.eval_items is None
            else {"items": report.eval_items, "one_ngram_in": report.eval_stride},
            "options": dict(sorted(report.options.items())),
            "exports": {card.kind: _card(card, with_eval=report.eval_items is not None) for card in report.cards},
        }
    )


def card_markdown(report: ExportReport) -> str:
    """Return quality.md."""
    lines = ["# Quality of the exported data", "", *(f"- {line}" for line in _overview(report)), ""]
    for card in report.cards:
        lines += [f"## {card.file}", "", *(f"- {line}" for line in _lines(card, report)), ""]
    return "\n".join(lines)


def card_lines(report: ExportReport) -> list[str]:
    """Return what the terminal shows: a line a file, and what to be careful about."""
    shown = []
    for card in report.cards:
        covered = f" of {counted(card.prompts, 'prompt')}" if card.kind != "grpo" else ""
        shown.append(f"{card.file}: {counted(card.rows, 'row')}{covered}")
        shown += [f"  {line}" for line in _warnings(card, report)]
    shown += [
        f"Left out, {REASONS[why]}: {counted(episodes, 'episode')}"
        for why, episodes in _counted(report.unusable).items()
    ]
    if report.masked:
        shown.append(
            f"A key or token is masked in {counted(report.masked, 'episode')}: "
            + (
                "kept, see the column masked."
                if report.options.get("keep_masked")
                else "left out; --keep-masked keeps."
            )
        )
    return shown


def _overview(report: ExportReport) -> Iterator[str]:
    yield f"episodes: {count(report.episodes)}, at {count(report.prompts)} prompts"
    yield f"prompts with a label: {count(report.labelled_prompts)}"
    yield f"prompts with better and worse episodes: {count(report.contrasted_prompts)}"
    if report.tail_episodes is not None:
        top = f"{percent(report.options['from_tail'])} of those with a tail token"
        yield f"episodes with most tail tokens, whose prompts pairs are of: {count(report.tail_episodes)} ({top})"
    for why, episodes in _counted(report.unusable).items():
        yield f"episodes left out of everything, {REASONS[why]}: {count(episodes)}"
    if report.masked:
        texts = counted(report.masked_texts, "text")
        yield f"episodes in which a key or token is masked: {count(report.masked)}, in {texts}; nothing else is masked"
    else:
        yield "nothing is masked in the messages"
    if report.trimmed:
        yield f"episodes cut after the last turn of the assistant: {count(report.trimmed)}"
    if report.merged:
        yield f"messages of the assistant joined into one turn: {count(report.merged)}"


def _lines(card: Card, report: ExportReport) -> Iterator[str]:
    yield f"rows: {count(card.rows)}, of {count(card.prompts)} prompts"
    if card.kind == "kto" and card.rows:
        yield f"rows labelled true: {percent(card.positive / card.rows)}"
    if card.margins.rows:
        yield f"margin, mean: {_with_interval(card.margins)}"
        yield f"chosen longer than rejected: {_with_interval(card.chosen_longer)} of the pairs (0.5: no length bias)"
        yield f"length of chosen over rejected, geometric mean: {_ratio(card.log_ratio)}"
    if card.rows and card.kind != "grpo":
        yield f"rows with tool calls: {percent(card.with_calls / card.rows)}; with definitions of tools: " + percent(
            card.with_tools / card.rows
        )
        yield f"rows with a truncated episode: {percent(card.truncated / card.rows)}"
        yield f"rows with a malformed tool call: {percent(card.malformed / card.rows)}"
    for why, left in _counted(card.left_out).items():
        yield f"left out, {REASONS[why]}: {count(left)}"
    yield from _warnings(card, report)


def _warnings(card: Card, report: ExportReport) -> Iterator[str]:
    if card.kind in PAIRED and report.reworded_tasks:
        noun = "task was" if report.reworded_tasks == 1 else "tasks were"
        yield (
            f"{count(report.reworded_tasks)} {noun} repeated, each time from another opening; "
            "attempts are paired only after the same first messages"
        )
    if not card.rows:
        left_out = _counted(card.left_out) or _counted(report.unusable)
        reasons = [f"{REASONS[why]} ({count(left)})" for why, left in left_out.items()]
        yield f"nothing to write: {'; '.join(reasons) or 'no episode'}"
        return
    if card.masked:
        yield f"a key or token is masked: in {counted(card.masked, 'row')}, see the column masked"
    yield from _of_tool_output(card)
    if card.weak:
        pairs = f"{count(card.weak)} of {counted(card.rows, 'pair')}"
        yield f"weak: {pairs} on one attempt against one, see the column weak; --min-attempts 2 leaves them out"
    interval = card.chosen_longer.interval
    if interval is not None and (interval[0] > 0.5 + LEANING or interval[1] < 0.5 - LEANING):
        side = "chosen" if interval[0] > 0.5 else "rejected"
        yield f"length bias: the {side} side is the longer one in most pairs; --match-length pairs equal lengths"
    if card.kind == "kto" and card.positive in (0, card.rows):
        yield f"all rows are labelled {'true' if card.positive else 'false'}: KTO needs both"
    if card.templated:
        yield f"prompts that a chat template rendered before: in {counted(card.templated, 'row')}"
    if card.of_evaluation:
        yield f"from episodes of an evaluation: {counted(card.of_evaluation, 'row')}"
    if report.eval_items is not None:
        yield f"13 words in a row shared with the evaluation set: {counted(card.overlapping, 'row')}"


def _of_tool_output(card: Card) -> Iterator[str]:
    """Say what keeps tool output out of the loss: a row of one turn, or the trainer's mask."""
    if card.split and card.kind != "steps":
        yield f"one turn a row, since tools or users speak between turns: {counted(card.split, 'row')}"
    if not card.with_tool_output:
        return
    held = f"tools or users speak in {counted(card.with_tool_output, 'row')}"
    if card.kind == "sft":
        yield f"{held}: train with assistant_only_loss=True (TRL), or --tool-output split"
    else:
        undo = "--steps-to turn" if card.kind == "steps" else "--tool-output split"
        yield f"{held}, and {'KTO' if card.kind == 'kto' else 'DPO'} trains on that too; {undo} leaves it out"


def _card(card: Card, *, with_eval: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "file": card.file,
        "rows": card.rows,
        "prompts": card.prompts,
        "left_out": _counted(card.left_out),
        "rows_with_tool_calls": card.with_calls,
        "rows_with_malformed_calls": card.malformed,
        "rows_with_tool_definitions": card.with_tools,
        "rows_truncated": card.truncated,
        "rows_with_rendered_prompt": card.templated,
        "rows_of_one_turn": card.split,
        "rows_with_tool_output": card.with_tool_output,
        "rows_masked": card.masked,
        "rows_of_evaluation": card.of_evaluation,
        "rows_overlapping_eval_set": card.overlapping if with_eval else None,
    }
    if card.kind == "kto":
        found["rows_labelled_true"] = card.positive
    if card.kind in PAIRED:
        found["rows_weak"] = card.weak
        found["margin"] = _mean(card.margins)
        found["chosen_longer"] = _mean(card.chosen_longer)
        found["log_length_ratio"] = _mean(card.log_ratio)
    return found


def _mean(found: ClusteredMean) -> dict[str, object]:
    return {"mean": found.mean, "interval": found.interval, "prompts": found.clusters}


def _counted(found: dict[str, int]) -> dict[str, int]:
    return {why: left for why, left in sorted(found.items()) if left}


def _with_interval(found: ClusteredMean) -> str:
    if found.interval is None:
        return number(found.mean)
    return f"{number(found.mean)} ({number(found.interval[0])} to {number(found.interval[1])})"


def _ratio(found: ClusteredMean) -> str:
    mean = math.exp(found.mean or 0.0)
    if found.interval is None:
        return number(mean)
    low, high = map(math.exp, found.interval)
    return f"{number(mean)} ({number(low)} to {number(high)})"
