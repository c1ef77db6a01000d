"""Measure what an answer's text shows: a refusal, repetition, a claim of success; and read labels of success.

Texts are not kept, so this is done while they are read, on the beginning and end of each. Claims are read
conservatively, since many agents report what they did."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from ptt.diagnostics.definitions import compiled

Hashes = npt.NDArray[np.uint64]

ANSWER_PART_CHARS: Final = 2000  # from the beginning, and as many from the end: a loop, once begun, lasts to the end
PART_WORDS: Final = 200  # words in each of these parts; a fixed size, since longer texts repeat more words by chance
WORD: Final = compiled(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")  # a sign of Chinese or Japanese is a word
REASONING_END: Final = ("</think>", "</thinking>", "</reasoning>")  # the answer follows it
MARKS: Final = compiled(r"^(?:[\s*_#>\"'`:.-]|<[^<>]{1,20}>|(?:assistant|answer|response|final answer)\s*:)+", re.I)
OPENING_CHARS: Final = 200  # characters within which a refusal begins
NGRAM: Final = 4  # words, as seq-rep-4 of Welleck et al., Neural Text Generation with Unlikelihood Training
MIN_WORDS: Final = 24  # shorter texts hold no loop, and agree by chance
SHINGLE: Final = 3  # words; nearly equal texts share most of these
PERMUTATIONS: Final = 32  # of a sketch: the overlap of two texts is then known to 0.09 (one standard error)
SEED: Final = 20_261_123
FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of the golden ratio: spreads sums over all bits
MIN_LANGUAGE_WORDS: Final = 8  # fewer tell no language
MIN_ENGLISH_SHARE: Final = 0.1  # of words; plain English has 0.4

ENGLISH: Final = frozenset(
    {"the", "of", "and", "to", "a", "in", "is", "it", "that", "for", "on", "with", "as", "was", "be", "by", "at",
     "this", "have", "from", "or", "are", "not", "but", "we", "you", "i", "so", "if", "can"}
)  # fmt: skip
_REGRET: Final = (
    r"(?:(?:i'?m|i am) (?:(?:really|very|so|truly|afraid|deeply) )*(?:sorry|afraid)|sorry|apologies|my apologies"
    r"|i (?:do )?apologi[sz]e|unfortunately|no)\b[^.!?\n]{0,60}?\W+(?:but )?"
)
_ACTS: Final = (
    r"(?:help|assist|aid|provide|comply|fulfil|support|engage|participate|generate|produce|create|write|answer"
    r"|respond|discuss|advise|offer|facilitate|encourage|endorse|promote|share|do (?:that|this)|satisfy|continue with"
    r"|complete (?:this|that|your) request|give (?:you )?(?:advice|instructions|information))"
)
_UNABLE: Final = (
    r"(?:i (?:can'?t|can ?not|could ?n[o']t|won'?t|will not|must decline|have to decline|must refuse"
    r"|do not feel comfortable|don'?t feel comfortable)|(?:i'?m|i am) (?:un(?:able|willing) to|not able to"
    r"|not comfortable|not going to))"
)
REFUSAL: Final = compiled(
    rf"(?:{_REGRET})?(?:as an ai\b[^.!?\n]{{0,60}}?,? )?{_UNABLE}\b"
    rf"(?:(?<=decline)|(?<=refuse)|(?<=comfortable)|(?: \w+ly| in good conscience| be able to| ever)*,? {_ACTS}\w*\b)"
    r"|as an ai (?:language )?model, i (?:do not|don'?t|am not|cannot|can'?t)"
)
"""Openings of refusals, after Zou et al. (arXiv 2307.15043) and Arditi et al. (arXiv 2406.11717); a verb must follow,
since "I cannot find the file" and "I won't lie" refuse nothing."""


def measure_answer(text: str) -> dict[str, Any]:
    """Return the columns of an answer that its text gives; null where it is too short, or of another language."""
    parts = [text] if len(text) <= 2 * ANSWER_PART_CHARS else [text[:ANSWER_PART_CHARS], text[-ANSWER_PART_CHARS:]]
    found = [WORD.findall(part.lower()) for part in parts]
    if sum(map(len, found)) > 2 * PART_WORDS:
        found = [found[0][:PART_WORDS], found[-1][-PART_WORDS:]]
    elif len(found) == 1 and len(found[0]) > PART_WORDS:
        found = [found[0][:PART_WORDS], found[0][PART_WORDS:]]
    words = [word for part in found for word in part]
    hashes = [np.array([*map(zlib.crc32, map(str.encode, part))], np.uint64) for part in found]
    long = len(words) >= MIN_WORDS
    return {
        "refuses": _refuses(text, words),
        "repetition": max(_repetition(part) for part in hashes) if long else 1.0 if _is_uniform(text) else None,
        "sketch": _sketch(hashes) if long else None,
    }


UNIFORM_CHARS: Final = 32  # a text so long of so few different characters is no word of any language
UNIFORM_KINDS: Final = 2
BOXED: Final = "\\boxed{"
FINAL: Final = compiled(r"####\s*([^\n]{1,200})|<answer>(.{1,400}?)</answer>", re.DOTALL)
SPACING: Final = compiled(r"\\[,;!: ]|\\(?:left|right|text|mathrm|dfrac|tfrac)(?![a-z])|[\s$]")
THOUSANDS: Final = compiled(r"(?<=\d),(?=\d{3}(?!\d))")  # other commas stand between numbers
MAX_EXPECTED: Final = 200  # characters; a longer expected text is no answer that can be compared


def final_answer(text: str) -> str | None:
    """Return what a text marks as its answer: in the last box, after `####`, or between answer tags."""
    at = text.rfind(BOXED)
    if at >= 0:
        depth, begin = 1, at + len(BOXED)
        for place in range(begin, min(len(text), begin + MAX_EXPECTED)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if not depth:
                return text[begin:place]
    marked = FINAL.findall(text)
    return "".join(marked[-1]) if marked else None


def is_right(text: str, expected: Any) -> bool | None:
    """Return whether a text's marked answer is the expected one, letter by letter or as a number; None if unknown."""
    if isinstance(expected, list) and len(expected) == 1:
        expected = expected[0]
    if isinstance(expected, bool) or not isinstance(expected, str | int | float):
        return None
    wanted, given = str(expected), final_answer(text)
    wanted = final_answer(wanted) or wanted
    if given is None or not 0 < len(wanted) <= MAX_EXPECTED:
        return None
    return _plain_answer(given) == _plain_answer(wanted)


def _plain_answer(text: str) -> str | float:
    plain = SPACING.sub("", text).strip().rstrip(".").lower()
    try:
        return float(THOUSANDS.sub("", plain))
    except ValueError:
        return plain


def _refuses(text: str, words: list[str]) -> bool | None:
    """Tell whether an answer begins with a refusal; None where it is not in English."""
    for mark in REASONING_END:
        text = text.rpartition(mark)[2]
    opening = MARKS.sub("", text[: 2 * OPENING_CHARS])[:OPENING_CHARS].lower()
    opening = " ".join(opening.replace("\u2019", "'").split())
    if REFUSAL.match(opening):
        return True
    known = sum(word in ENGLISH for word in words)
    foreign = len(words) >= MIN_LANGUAGE_WORDS and known < MIN_ENGLISH_SHARE * len(words)
    return None if foreign else False


def _is_uniform(text: str) -> bool:
    """Return whether a text is one or two characters over and over."""
    part = text[:ANSWER_PART_CHARS].strip()
    return len(part) >= UNIFORM_CHARS and len(set(part)) <= UNIFORM_KINDS


def _repetition(words: Hashes) -> float:
    """Return the share of the n-grams that stood there before."""
    grams = _grams(words, NGRAM)
    return 1.0 - len(np.unique(grams)) / len(grams) if len(words) >= MIN_WORDS else 0.0


def _grams(words: Hashes, size: int) -> Hashes:
    """Return one hash for each run of `size` words."""
    count = max(0, len(words) - size + 1)
    grams = np.zeros(count, np.uint64)
    for place in range(size):
        grams = (grams + words[place : place + count]) * FACTOR
        grams ^= grams >> np.uint64(29)
    return grams


def _sketch(parts: list[Hashes]) -> list[int]:
    """Return the least hash of the shingles under each permutation: MinHash (Broder 1997), docs/decisions/017."""
    grams = np.concatenate([_grams(part, SHINGLE) for part in parts])
    sketch: list[int] = RMinHash.digest_matrix_from_flat_token_hashes(
        grams, [0, len(grams)], PERMUTATIONS, SEED
    ).to_rows()[0]
    return sketch


CLAIM_PART_CHARS: Final = 800  # from the beginning and the end: a claim is in a first or last sentence
STEMS: Final = ("success", "complet", "fixed", "resolved", "solved", "done", "finished", "booked", "cancel", "pass",
                "been ", "have ", "'ve ")  # fmt: skip
"""Every claim contains one of these: a quick check before the patterns."""
_DONE: Final = (
    r"(?:completed|fixed|resolved|solved|implemented|booked|cancell?ed|updated|created|submitted|placed|processed"
    r"|finished|exchanged|returned|modified|refunded|rescheduled|transferred|installed|deployed|corrected|accomplished)"
)
CLAIM: Final = compiled(
    rf"\bsuccessfully {_DONE}\b|\bsuccess(?:ful)?ly (?:added|changed|removed|applied|made|sent|built|ran|passed)\b"
    rf"|\b(?:i|we)(?:'ve| have) (?:now |also |already |just )?{_DONE}\b"
    rf"|\b(?:has|have) (?:now |just )?been (?:fully )?{_DONE}\b"
    r"|\b(?:task|issue|bug|problem|request|work|job|goal|implementation) (?:is|are|has been) (?:now |fully )?"
    r"(?:complete|completed|done|fixed|resolved|solved|finished|working)\b"
    r"|\ball (?:the )?(?:\w+ )?tests (?:now )?(?:pass|passed|are passing)\b|\btask (?:complete|completed|done)\b"
    r"|^\W*(?:all )?(?:done|finished|completed)\W*$",
    re.I,
)
DENIAL: Final = compiled(
    r"\b(?:not|no|never|un(?:able|successful\w*)|cannot|fail\w*|if|once|when|until|unless|should|would|will|to be"
    r"|please|let me|need(?:s|ed)? to|partial\w*|partly|almost|error)\b|n't\b|\?",
    re.I,
)
"""Words of a sentence that claims nothing: it denies, conditions, announces or asks."""
ADMISSION: Final = compiled(
    r"\b(?:un(?:able|fortunately)|(?:could|was|were|am|did|do|does|is|are) ?(?:not|n't) (?:able|possible|complete"
    r"|finish|find|fix|resolve|solve)\w*|couldn't|can(?:not|'t)|failed to|gave up|still (?:fail|broken)\w*)\b",
    re.I,
)
"""Words that admit a failure: a message with one of them makes no claim."""
SENTENCE_END: Final = compiled(r"(?<=[.!?])\s+|\n+|;\s")
FINISHING: Final = compiled(r"(?:finish|attempt_completion|(?:mark_)?task_completed?|complete_task|task_done)", re.I)


def claims_success(text: str) -> bool | None:
    """Tell whether a last message claims success; None where it is not in English."""
    part = text if len(text) <= 2 * CLAIM_PART_CHARS else f"{text[:CLAIM_PART_CHARS]}\n{text[-CLAIM_PART_CHARS:]}"
    small = part.lower().replace("\u2019", "'")
    if not any(stem in small for stem in STEMS):
        return False if small.isascii() or _is_english(small) else None
    if ADMISSION.search(small):
        return False
    return any(CLAIM.search(sentence) and not DENIAL.search(sentence) for sentence in SENTENCE_END.split(small))


def last_words(answer: str | None, calls: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the last message, together with the text of a last call that finishes the task."""
    if calls and FINISHING.fullmatch(calls[-1].get("name") or "") and calls[-1].get("args_json"):
        said = re.sub(r'\\n|["{}]', "\n", calls[-1]["args_json"])
        return f"{answer}\n{said}" if answer else said
    return answer


def _is_english(text: str) -> bool:
    words = WORD.findall(text)
    return len(words) < MIN_LANGUAGE_WORDS or sum(word in ENGLISH for word in words) >= MIN_ENGLISH_SHARE * len(words)


# A judge's, a format's or a length's 1 does not say so.
CORRECT: Final = compiled(
    r"(?:is_|task_|answer_)?(?:success(?:ful)?|succeeded|solved|resolved|passed|correct(?:ness)?(?:_answer)?|acc(?:uracy)?|exact_match)"
    r"(?:_reward)?(?:_func|_fn)?",
    re.I,
)


def as_success(found: Any) -> bool | None:
    """Return a label of success: a boolean, or 0 or 1; fractions are not labels."""
    if isinstance(found, bool):
        return found
    return bool(found) if isinstance(found, int | float) and found in (0, 1) else None


def success_of(scores: Mapping[str, float | None]) -> bool | None:
    """Return whether the task was done, where a score that is named for it is 1 or 0."""
    return as_success(next((score for name, score in scores.items() if CORRECT.fullmatch(name)), None))


EMPTY: Final = compiled(
    r"[\s\[\]{}()\"',]*|(?i:(?:none|null|n/a|no (?:results?|documents?|content|output)(?: found)?)\.?)"
)
HEADER: Final = compiled(r"\[?(?:#+ |\d{1,3}[.):] |(?:Doc(?:ument)?|Result|Source|Passage|Page|Title|Item)\b)", re.I)
MIN_HEADERS: Final = 2  # one title alone may be the answer
DIGITS: Final = compiled(r"\d+(?:\.\d+)?")
EMPTY_CHARS: Final = 4000  # a longer result is not looked at


def is_empty_result(text: str) -> bool:
    """Return whether a result holds nothing: it is blank, or a list of items with headers and without content.

    The headers of such a list are alike but for their numbers.
    """
    if len(text) > EMPTY_CHARS:
        return False
    if EMPTY.fullmatch(text):
        return True
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (
        len(lines) >= MIN_HEADERS
        and all(map(HEADER.match, lines))
        and len({DIGITS.sub("#", line) for line in lines}) == 1
    )
