"""Write training data from the conversations of a store, prompt by prompt, and count what it is worth."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.traces.exports.messages import ASSISTANT, DIGEST_BYTES, MAX_TURNS, Chat, Conversation
from ptt.diagnostics.traces.exports.ngrams import EvalSet
from ptt.diagnostics.traces.exports.options import Dedupe, ExportKind, ExportOptions, StepExtent
from ptt.diagnostics.traces.exports.pairs import (
    CONTRADICTORY,
    DUPLICATE,
    NOT_DRAWN,
    TOP_SHARE,
    UNLABELLED,
    Candidates,
    TailEpisodes,
    Tally,
    candidates,
    choose_pairs,
    choose_steps,
    read_tail_episodes,
    same_prompt,
)
from ptt.diagnostics.traces.exports.partition import (
    Attempt,
    PromptGroup,
    episode_index,
    prompt_groups,
    reworded_tasks,
)
from ptt.diagnostics.traces.exports.quality import Card, ExportReport
from ptt.diagnostics.traces.exports.rows import (
    TAIL_SHARE,
    PromptRow,
    Writers,
    columns_of,
    episode_row,
    is_templated,
    pair_row,
)
from ptt.stopping import temporary_folder

EQUAL_LABELS = "reward_is_the_mean"
MASKED = "masked"
NOT_SUCCESSFUL = "not_successful"
ONE_ATTEMPT = "prompts_with_one_attempt"
ONE_OUTCOME = "prompts_without_contrast"
TOLD_OTHERWISE = ("kinds", "eval_set", "from_tail")  # options that the card does not list by name
NOT_OF_TAIL = "prompts_outside_the_tail"
CONTRADICTORY_TURN = "contradictory_turn"
BEYOND_TURNS = "beyond_turns"


def export_traces(store: Path, folder: Path, options: ExportOptions) -> ExportReport:
    """Write what `options` asks for into `folder`, from a store that keeps conversations.

    All files appear at the end, or none does. InputError where no conversations are kept, SettingsError where the
    folder cannot be written to.
    """
    if not (store / "conversations").is_dir():
        raise InputError(f"{store}: keeps no conversations; give the trace files themselves with --export.")
    if options.from_tail and ExportKind.PAIRS not in options.kinds:
        raise SettingsError("--from-tail chooses the prompts of pairs; add --export pairs.")
    tail = read_tail_episodes(store) if options.from_tail else None
    evals = EvalSet(options.eval_set) if options.eval_set else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(temporary_folder(".ptt-export-", within=folder)))
            columns = {kind.value: columns_of(kind, with_tail=options.from_tail) for kind in options.kinds}
            writers = stack.enter_context(Writers(folder, scratch, options.format, columns))
            export = _Export(options=options, writers=writers, evals=evals, tail=tail)
            buckets = scratch / "buckets"
            buckets.mkdir()
            index = episode_index(store)
            export.report.reworded_tasks = reworded_tasks(index)
            for group in prompt_groups(store, index, buckets):
                export.take(group)
    except OSError as error:
        where = error.filename or folder
        raise SettingsError(f"{where}: cannot be written: {error.strerror or error}; give --export-to.") from error
    return export.finished()


@dataclass
class _Export:
    """The exports of one run of the command, and what was counted."""

    options: ExportOptions
    writers: Writers
    evals: EvalSet | None
    tail: TailEpisodes | None = None
    report: ExportReport = field(default_factory=ExportReport)
    cards: dict[ExportKind, Card] = field(default_factory=dict)
    _templated: dict[bytes, bool] = field(default_factory=dict)
    _seen: dict[ExportKind, set[bytes]] = field(default_factory=dict)  # rows of this group's prompts

    def __post_init__(self) -> None:
        self.cards = {kind: Card(kind=kind.value, file=self.writers.names[kind.value]) for kind in self.options.kinds}

    def take(self, group: PromptGroup) -> None:
        """Write the rows of the attempts at one prompt."""
        self._seen = {kind: set() for kind in self.cards}
        self._templated.clear()
        drawn: list[Attempt] = []
        prompts: dict[tuple[object, ...], PromptRow] = {}
        for attempt in group.attempts:
            self._count(attempt)
            if attempt.chat.prompt.texts:
                key = (attempt.chat.prompt.digest, attempt.tools, attempt.facts["task"])
                prompts.setdefault(key, PromptRow(attempt)).add(attempt)
            if attempt.chat.why:
                self.report.unusable[attempt.chat.why] += 1
            elif attempt.masked and not self.options.keep_masked:
                self._leave_out(MASKED, ExportKind.PAIRS, ExportKind.KTO, ExportKind.SFT, ExportKind.STEPS)
            elif attempt.drawn:
                drawn.append(attempt)
            else:
                self._leave_out(NOT_DRAWN, ExportKind.PAIRS, ExportKind.STEPS)
                self._add_episode(attempt)
        for _, attempts in same_prompt(drawn):
            self._take_prompt(attempts)
        if card := self.cards.get(ExportKind.GRPO):
            for prompt in prompts.values():
                if prompt.attempt.has_masked_prompt and not self.options.keep_masked:
                    self._leave_out(MASKED, ExportKind.GRPO)
                    continue
                row = prompt.row(self._overlap)
                self._add(card, row, prompt.attempt.chat.prompt, [])
                card.prompts += 1

    def finished(self) -> ExportReport:
        """Return what was counted."""
        self.report.cards = list(self.cards.values())
        given = asdict(self.options)
        self.report.options = {name: given[name] for name in given if name not in TOLD_OTHERWISE}
        if self.tail is not None:
            self.report.options["from_tail"] = TOP_SHARE
            self.report.tail_episodes = len(self.tail.top)
        if self.evals is not None:
            self.report.eval_items, self.report.eval_stride = self.evals.items, self.evals.stride
        return self.report

    def _count(self, attempt: Attempt) -> None:
        self.report.episodes += 1
        self.report.trimmed += attempt.chat.trimmed
        self.report.merged += attempt.chat.merged
        self.report.masked += attempt.masked > 0
        self.report.masked_texts += attempt.masked

    def _take_prompt(self, attempts: list[Attempt]) -> None:
        """Write the rows of attempts at the same prompt, which are few."""
        self.report.prompts += 1
        self.report.labelled_prompts += any(one.success is not None or one.reward is not None for one in attempts)
        contradictory = _contradictory(attempts)
        turns = _contradictory_turns(attempts, self.options.min_margin) if self._splits_kto else frozenset()
        rows = {kind: card.rows for kind, card in self.cards.items()}
        for attempt in attempts:
            if attempt.chat.completion.digest in contradictory:
                self._leave_out(CONTRADICTORY, ExportKind.KTO, ExportKind.SFT)
            else:
                self._add_episode(attempt, turns)
        for kind in {ExportKind.KTO, ExportKind.SFT} & set(rows):
            self.cards[kind].prompts += self.cards[kind].rows > rows[kind]
        tally = Tally()
        found = candidates(attempts, self.options.dedupe, tally)
        self.report.contrasted_prompts += found is not None
        if found is None:
            self._leave_out(ONE_ATTEMPT if len(attempts) == 1 else ONE_OUTCOME, ExportKind.PAIRS, ExportKind.STEPS)
        if self.tail is None or self.tail.holds(attempts):
            self._add_pairs(ExportKind.PAIRS, found, tally)
        elif found is not None:
            self._leave_out(NOT_OF_TAIL, ExportKind.PAIRS)
        self._add_pairs(ExportKind.STEPS, found, tally)

    def _add_pairs(self, kind: ExportKind, found: Candidates | None, shared: Tally) -> None:
        """Write the pairs of one prompt, and count it."""
        card = self.cards.get(kind)
        if card is None:
            return
        tally, options = Tally(episodes=shared.episodes.copy()), self.options
        by_step = kind is ExportKind.STEPS
        if not by_step and found is not None and found.has_tool_output and options.splits(kind):
            by_step, options = True, replace(options, steps_to=StepExtent.TURN)
        choose = choose_steps if by_step else choose_pairs
        longer, ratios, margins = [], [], []
        for pair in choose(found, options, tally) if found else ():
            row, sides = pair_row(pair, self._overlap), (pair.better, pair.worse)
            if self.tail is not None and kind is ExportKind.PAIRS:
                row[TAIL_SHARE] = self.tail.share(sides)
            if self._add(card, row, pair.prompt, sides, pair.chosen, pair.rejected):
                card.weak += pair.is_weak
                longer.append(_longer(pair.chosen, pair.rejected))
                # one side of a step-level pair may be empty
                ratios.append(math.log((by_step + pair.chosen.length) / (by_step + pair.rejected.length)))
                margins.append(pair.margin)
        card.left_out.update(tally.episodes)
        card.left_out.update(tally.pairs)
        card.prompts += bool(margins)
        card.chosen_longer.add(longer)
        card.log_ratio.add(ratios)
        card.margins.add(margins)

    def _add_episode(self, attempt: Attempt, contradictory: Container[bytes] = ()) -> None:
        """Write the rows that one episode makes by itself; `contradictory`: turns that both succeeded and failed."""
        if card := self.cards.get(ExportKind.KTO):
            label, label_from = _label(attempt, self.options.min_margin)
            if label is None:
                card.left_out[label_from] += 1
            else:
                labels = {"label": label, "label_from": label_from}
                card.positive += label * self._add_turns(card, attempt, labels, contradictory)
        if card := self.cards.get(ExportKind.SFT):
            if why := _why_not_sft(attempt, self.options):
                card.left_out[why] += 1
            else:
                self._add_turns(card, attempt, {}, ())

    @property
    def _splits_kto(self) -> bool:
        return ExportKind.KTO in self.cards and self.options.splits(ExportKind.KTO)

    def _add_turns(
        self, card: Card, attempt: Attempt, labels: Mapping[str, Any], contradictory: Container[bytes]
    ) -> int:
        """Write an episode as one row, or as one for each turn where others speak between them; return how many."""
        completion = attempt.chat.completion
        chats: Iterable[tuple[int | None, Conversation]] = [(None, attempt.chat)]
        if completion.has_tool_output and self.options.splits(ExportKind(card.kind)):
            chats = attempt.chat.turns()
            card.left_out[BEYOND_TURNS] += max(0, completion.roles.count(ASSISTANT) - MAX_TURNS)
        before = card.rows
        for turn, chat in chats:
            if turn is not None and chat.digest in contradictory:
                card.left_out[CONTRADICTORY_TURN] += 1
                continue
            row = {**episode_row(attempt, chat, turn, self._overlap), **labels}
            self._add(card, row, chat.prompt, [attempt], chat.completion)
        return card.rows - before

    def _add(
        self, card: Card, row: dict[str, Any], prompt: Chat, attempts: Sequence[Attempt], *completions: Chat
    ) -> bool:
        """Write a row and count it; say whether it is new."""
        kind = ExportKind(card.kind)
        digest = blake2b(prompt.digest, digest_size=DIGEST_BYTES)
        for chat in completions:
            digest.update(chat.digest + b"|")
        tools = row["tools"]
        digest.update((tools or "").encode() + (row["task"] or "").encode() * (kind is ExportKind.GRPO))
        if digest.digest() in self._seen[kind] and self.options.dedupe is not Dedupe.NONE:
            card.left_out[DUPLICATE] += 1
            return False
        self._seen[kind].add(digest.digest())
        self.writers.add(card.kind, row, sum(len(text) for chat in (prompt, *completions) for text in chat.texts))
        card.rows += 1
        card.truncated += any(attempt.facts["truncated"] for attempt in attempts)
        card.with_calls += any('"tool_calls":' in text for chat in completions for text in chat.texts)
        card.malformed += any(any(chat.malformed) for chat in completions)
        card.split += row.get("turn") is not None and all(len(chat.roles) < 2 for chat in completions)
        card.with_tool_output += any(chat.has_tool_output for chat in completions)
        card.masked += row["masked"]
        card.with_tools += tools is not None
        if prompt.digest not in self._templated:
            self._templated[prompt.digest] = is_templated(prompt)
        card.templated += self._templated[prompt.digest]
        card.overlapping += bool(row["eval_overlap"])
        card.of_evaluation += row["split"] == "eval"
        return True

    def _overlap(self, chats: Sequence[Chat]) -> float | None:
        """Return the largest share of the runs of words of a side that the evaluation set holds."""
        if self.evals is None:
            return None
        texts = ([said for said, role in zip(chat.said, chat.roles, strict=True) if role != "system"] for chat in chats)
        return max(map(self.evals.overlap, texts))

    def _leave_out(self, why: str, *kinds: ExportKind) -> None:
        for kind in kinds:
            if card := self.cards.get(kind):
                card.left_out[why] += 1


def _longer(chosen: Chat, rejected: Chat) -> float:
    return 0.5 if chosen.length == rejected.length else float(chosen.length > rejected.length)


def _contradictory(attempts: Sequence[Attempt]) -> frozenset[bytes]:
    """Return the completions of a prompt that succeeded once and failed once."""
    return _in_both((one.chat.completion.digest, one.success) for one in attempts)


def _contradictory_turns(attempts: Sequence[Attempt], min_margin: float) -> frozenset[bytes]:
    """Return the turns at a prompt that episodes of either label took."""
    labels = ((_label(one, min_margin)[0], one.chat) for one in attempts)
    return _in_both((turn.digest, label) for label, chat in labels if label is not None for _, turn in chat.turns())


def _in_both(outcomes: Iterable[tuple[bytes, bool | None]]) -> frozenset[bytes]:
    found: dict[bytes, set[bool]] = {}
    for digest, outcome in outcomes:
        if outcome is not None:
            found.setdefault(digest, set()).add(outcome)
    return frozenset(digest for digest, of in found.items() if len(of) > 1)


def _label(attempt: Attempt, min_margin: float) -> tuple[bool | None, str]:
    """Return the label for KTO and its source, or None and the reason."""
    if attempt.success is not None:
        return attempt.success, "success"
    if attempt.judged or attempt.reward is None or attempt.mean_reward is None:
        return None, UNLABELLED
    above = attempt.reward - attempt.mean_reward
    if above == 0 or abs(above) < min_margin:
        return None, EQUAL_LABELS
    return above > 0, "reward"


def _why_not_sft(attempt: Attempt, options: ExportOptions) -> str:
    """Return why an episode is no demonstration; "" where it is one."""
    least, reward = options.min_reward, attempt.reward
    if attempt.success is False or (least is not None and reward is not None and reward < least):
        return NOT_SUCCESSFUL
    if attempt.success or (least is not None and reward is not None):
        return ""
    return "" if options.include_unlabelled and reward is None else UNLABELLED
