"""Make `ptt/diagnostics/scrub/patterns.json` of gitleaks' rules.

Run `python docs/make_secret_patterns.py GITLEAKS_TOML VERSION`, with gitleaks' LICENSE beside its table. gitleaks
(https://github.com/gitleaks/gitleaks, MIT licence) is written in Go; its patterns are put into Python's syntax. Rules
that need a vendor's name before the secret are left out: `credentials.py` reads any key and its value.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "ptt" / "diagnostics" / "scrub" / "patterns.json"
OF_A_NAME = r"[\w.-]{0,50}?"  # begins every rule that looks for a vendor's name, and the generic one
LEFT_OUT = {
    "curl-auth-header": "our own code reads headers wherever they stand",
    "curl-auth-user": "our own code reads --user",
    "private-key": "our own code takes keys that are cut or on one line",
    "sourcegraph-access-token": "takes every commit hash",
    "facebook-access-token": "takes numbers beside a bar, as tables have them",
    "jwt": "our own code takes those that are cut",
    "sidekiq-sensitive-url": "our own code reads URLs",
    "authress-service-client-access-key": "its keyword `ext_` stands in every text_length",
    "vault-service-token": "`s.` and letters is any attribute; our own code has `hvs.`",
    "intra42-client-secret": "its keyword `intra` is a word",
}
UNCUT = {
    "cloudflare-origin-ca-key": "a version and two hashes name runs",
    "huggingface-access-token": "hf_ and letters are names of Python; our own code takes those that are no words",
    "huggingface-organization-api-token": "the same",
}
LETTERS = {"eaam": "EAAM", "eaac": "EAAC"}  # keywords that no pattern spells out; gitleaks has all in small letters
SHORTEST = 12
"""Characters behind a prefix that are enough: a log cuts lines, and with them keys."""
END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
PREFIX = re.compile(r"(?:\\b)?\(*(?:\?:)?[A-Za-z0-9]{2,}[A-Za-z0-9_.\\-]*[_.-](?:[\[(\\]|$)")


def python(pattern: str, *, cut: bool) -> str:
    """Return a pattern of Go in Python's syntax; where a prefix tells a key, its rest may be `cut`."""
    pattern = pattern.replace(END, "" if cut else r"(?!\w)")
    pattern = pattern.replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z").replace(r"\x60", "`")
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    pattern = pattern.replace("(?:[`'\"\\s;]|\\\\[nr]|$|\\b)", "")
    pattern = re.sub(
        r"\(\?:\[\^([^\]]+)\]\|\\Z\)$", r"(?![\1])", pattern
    )  # what stands around a key is not masked with it
    pattern = re.sub(r"^\(\?:\^\|\[[^\]]*\]\)", r"(?<![\\w~.-])", pattern)
    pattern = re.sub(r"\(\?:\$\|\[[^\]]*\]\)$", r"(?![\\w~.-])", pattern)
    if pattern.count("(?i)") and not pattern.startswith("(?i)"):
        pattern = _scoped(pattern)
    pattern = "(?i)" + pattern.replace("(?i)", "") if pattern.startswith("(?i)") else pattern
    if cut:
        pattern = re.sub(
            r"\{(\d+)(?:,\d*)?\}", lambda match: f"{{{SHORTEST},}}" if int(match[1]) > SHORTEST else match[0], pattern
        )
    pattern = pattern.replace("(?i)\\b", "(?i)").removeprefix("\\b")  # a key may stand behind `_`
    alone = "" if pattern.startswith("(?<!") else "(?<![A-Za-z0-9])"
    return f"(?i){alone}{pattern[4:]}" if pattern.startswith("(?i)") else alone + pattern


def _keywords(rule: dict[str, Any], pattern: str) -> list[str]:
    """Return the keywords as the pattern spells them; a text without any of them is not looked at further."""
    spelt = pattern.replace("\\", "")
    found = []
    for keyword in rule["keywords"]:
        match = re.search(re.escape(keyword), spelt, re.IGNORECASE)
        found.append(match[0] if match else LETTERS.get(keyword, keyword))
    either = {form for word in found for form in (word.lower(), word.upper())} if "(?i)" in pattern else set()
    return sorted({*found, *either})


def _scoped(pattern: str) -> str:
    """Give a flag in the middle, which holds to the end of its group, a group of its own."""
    while "(?i)" in pattern:
        start = pattern.index("(?i)")
        depth, at = 0, start + 4
        while at < len(pattern):
            if pattern[at] == "\\":
                at += 1
            elif pattern[at] == "[":
                at = pattern.index("]", at + 2)
            elif pattern[at] == "(":
                depth += 1
            elif pattern[at] == ")":
                if depth == 0:
                    break
                depth -= 1
            at += 1
        pattern = f"{pattern[:start]}(?i:{pattern[start + 4 : at]}){pattern[at:]}"
    return pattern


def main() -> None:
    """Write the table."""
    source, version = Path(sys.argv[1]), sys.argv[2]
    table: dict[str, Any] = {
        "made by": "docs/make_secret_patterns.py from gitleaks' config/gitleaks.toml; edit the script",
        "source": "gitleaks",
        "version": version,
        "licence": source.with_name("LICENSE").read_text(encoding="utf-8").splitlines(),
        "shapes": [],
    }
    for rule in tomllib.loads(source.read_text(encoding="utf-8"))["rules"]:
        if "regex" not in rule or "path" in rule or OF_A_NAME in rule["regex"] or rule["id"] in LEFT_OUT:
            continue
        cut = rule["id"] not in UNCUT and PREFIX.match(rule["regex"].removeprefix("(?i)")) is not None
        pattern = python(rule["regex"], cut=cut)
        re.compile(pattern)
        shape = {"id": rule["id"], "keywords": _keywords(rule, pattern), "pattern": pattern}
        table["shapes"].append(shape | {"entropy": float(rule.get("entropy", 0)), "cut": cut})
    TARGET.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
