"""Names of people and machines: e-mail, user names, home folders, hosts and addresses."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.scrub.shapes import Replace, with_value, words

LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
OF_SITES: Final = words("sites")
OTHERS: Final = words("countries")
INSIDE: Final = words("inside")
ALWAYS: Final = words("always_inside")
ENDINGS: Final = "|".join(sorted(OF_SITES | OTHERS | INSIDE, key=lambda ending: (-len(ending), ending)))
EMAIL: Final = compiled(
    rf"(?<![\w.+%-])(?!git@)[A-Za-z0-9](?:[\w.+%-]{{0,62}}\w)?@(?:{LABEL}\.){{1,8}}(?:{ENDINGS})(?![\w-])"
    r"(?!\.(?!(?:jsonl?|log|txt|csv|parquet|ya?ml|md)\b)\w)"
)
HOME_FOLDER: Final = "~"
HOME: Final = compiled(
    r"(?:(?<=file://)|(?<=[^:]/)|(?<![\w./-]))(?:/[\w.-]{1,60}){0,4}/(?:home|users|Users)/(?P<user>[^\s/\"'`:;,<>()\[\]{}|&=\\]{1,64})"
)
HOME_OF_WINDOWS: Final = compiled(
    r"(?i)\b[a-z]:(?:\\{1,4}|/)(?:users|documents and settings)(?:\\{1,4}|/)"
    r"(?P<user>[^/\\\"'`:;,<>|\n]{1,64}(?=\\)|[^\s/\\\"'`:;,<>()\[\]{}|]{1,64})"
)
TILDE: Final = compiled(r"(?<![\w~/.-])~(?P<user>[a-z][a-z0-9_.-]{1,31})(?=/)")
QUOTE: Final = r"\\?[\"'`]?"
END_OF_NAME: Final = r"(?=[\"'`\\,;)\]}&]|\s*$)"
USER: Final = compiled(
    rf"(?<![A-Za-z0-9])(?i:user_?name|user_?id|login(?:_?name)?|log_?name|account_?name|owner|submitted_by|created_by|"
    rf"author|[a-z]+_user|(?:wandb_)?entity|(?<![A-Za-z0-9_-])user){QUOTE}\s{{0,3}}[=:]\s{{0,3}}"
    rf"{QUOTE}(?P<value>[A-Za-z][A-Za-z0-9_.-]{{1,39}}){END_OF_NAME}"
)
USER_IN_ENVIRONMENT: Final = compiled(
    r"\b(?:USER|USERNAME|LOGNAME|SUDO_USER)=[\"']?(?P<value>[A-Za-z][A-Za-z0-9_.-]{1,39})"
)
USER_SPOKEN: Final = compiled(
    r"(?:[Ll]ogged in as:?|for user|by user|as user|of user|[Uu]ser name|run by|started by|[Uu]ser)\s+\\?[\"'`]?"
    r"(?P<value>[a-z][a-z0-9_.-]{1,31})(?P<quote>\\?[\"'`])?"
)
AT_HOST: Final = compiled(
    r"(?:(?<=[\s(\[\"'=])|^)(?P<value>[a-z_][a-z0-9_.-]{0,31}@[A-Za-z][A-Za-z0-9.-]{0,62})(?=:|\s*[$#%>~]|\))"
)
SSH: Final = compiled(
    r"\b(?:ssh|scp|rsync)\s(?:-\S+\s(?:\d+\s)?){0,4}(?P<value>[a-z_][a-z0-9_.-]{0,31}@[A-Za-z0-9][A-Za-z0-9.-]{0,62})"
)
KEY_COMMENT: Final = compiled(r"(?<=\[ssh-key-\d\] )(?P<value>[\w.-]{1,40}@[\w.-]{1,60})")
WANDB_PAGE: Final = compiled(r"\bwandb\.ai/(?P<value>[\w.-]{1,60})(?=/)")
NO_USER: Final = words("no_user")
NO_LOGIN: Final = words("no_login")  # pass@1, mean@8: figures

URL: Final = compiled(
    r"\b(?P<scheme>https?|ftps?|ssh|sftp|tcp|udp|ray|rediss?|postgres(?:ql)?(?:\+\w+)?|mysql(?:\+\w+)?|mongodb(?:\+srv)?|amqps?|"
    r"grpcs?|wss?|git|nfs|smb|ldaps?|zmq|kafka|nats|clickhouse|mssql)://(?:\[[a-z-]+-\d+\]@)?(?P<value>[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
)
DOTTED: Final = compiled(
    rf"(?<![\w@./-])(?P<value>(?:{LABEL}\.){{1,8}}(?:{ENDINGS}))(?![\w(-])(?!\.\w)(?!@)", re.IGNORECASE
)
CLOUD: Final = compiled(
    r"(?<![\w-])(?P<value>ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w.-]{1,80}\w)?|DESKTOP-[A-Z0-9]{5,10}|EC2AMAZ-[A-Z0-9]{5,10})"
)
HOST_NAMED: Final = compiled(
    rf"(?i)(?<![A-Za-z0-9])(?:[a-z]+_)?(?:host(?:_?name)?|node_?name|machine(?:_?name)?|master_?addr(?:ess)?|server_?name|"
    rf"master_?node|head_?node|node_?list|computer_?name|proxy_?host|fqdn){QUOTE}\s{{0,8}}[=:]\s{{0,3}}{QUOTE}"
    rf"(?P<value>[A-Za-z][A-Za-z0-9.-]{{0,62}}(?:\[[\d,-]{{1,60}}\])?)(?=[\"'`\\,;:)\]}}/&]|\s|$)"
)
HOST_SPOKEN: Final = compiled(
    r"(?i:\b(?:host|hostname|machine|node|server|worker node)\s+[\"'`]?)"
    r"(?P<value>(?=[A-Za-z0-9.-]{0,62}[0-9-])[A-Za-z][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,62}){0,8})"
    r"(?=[\"'`,;:)\]]|\s|\.?$)"
)
SLURM: Final = compiled(r"(?<=\d) ON (?P<value>[A-Za-z][\w.-]{0,62}) (?=CANCELLED|FAILED|[A-Z])")
NO_HOST: Final = words("no_host")
NO_HOST_SHAPE: Final = compiled(
    r"(?i)(?:rank|local|cuda|cpu|gpu|pid|port|id|index|group|process|worker|replica)[_-]?\d*|"
    r".*-(?:side|to-.*|level|based|wide|local|only|specific|pinned|bound|aware|[a-z]{2,}ed|[a-z]{2,}ing|\w*memory)"
)
"""What stands behind `host` and `node` besides a name: a number of a worker, and adjectives."""
PUBLIC: Final = words("public")
STORES: Final = compiled(r"(?i)(?:^|\.)s3(?:[.-][\w-]+)?\.amazonaws\.com$")
IPV4: Final = compiled(r"(?<![\w.=<>~!+/-])(?<!==)(?P<value>\d{1,3}(?:\.\d{1,3}){3})(?![\w-])(?!\.\d)")
IPV4_NAMED: Final = compiled(r"(?<=[\w\"'\]][=/@(-])(?P<value>\d{1,3}(?:\.\d{1,3}){3})(?![\w-])(?!\.\d)")
OF_A_VERSION: Final = compiled(
    r"(?i)(?:version|cudnn|cublas|cufft|curand|cusolver|cusparse|cuda|nccl|driver|nvidia|torch|release|build|"
    r"==|[-@ ]v|cu\d\d)"
    r"[\w.-]{0,20}\W{0,4}$"
)
IPV6: Final = compiled(r"(?<![\w:.])(?P<value>[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?:%\w+)?(?![\w:])")
MAC: Final = compiled(
    r"(?<![\w:-])(?P<value>[0-9A-Fa-f]{2}(?:(?P<sign>[:-])[0-9A-Fa-f]{2})(?:(?P=sign)[0-9A-Fa-f]{2}){4})(?![\w:-])"
)
NUMBERED: Final = compiled(r"\.\d{1,3}\.\d{1,3}\.\d")
COLONS: Final = compiled(
    r":[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{0,4}:|::[0-9A-Fa-f]|-[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}-"
)
ENDED: Final = compiled(rf"\.(?:{ENDINGS})(?![\w(-])", re.IGNORECASE)
"""Occurs wherever the longer patterns match, and begins with a character that is quick to find."""
MIN_HEX: Final = 4  # digits in one group of a shortened address: `a::b` is C++


def mask_people(text: str, replace: Replace, *, spoken: bool = True) -> str:
    """Mask e-mail addresses and home folders; user names where `spoken` of."""
    if "@" in text:
        text = EMAIL.sub(lambda match: replace("e-mail", match[0]), text)
    lowered = text.lower()
    if "/home/" in lowered or "/users/" in lowered:
        text = HOME.sub(lambda match: replace(HOME_FOLDER, match["user"]), text)
    if ":" in text and ("users" in lowered or "documents and settings" in lowered):
        text = HOME_OF_WINDOWS.sub(lambda match: replace(HOME_FOLDER, match["user"]), text)
    if not spoken:
        return text
    if "@" in text:
        for pattern in (SSH, AT_HOST, KEY_COMMENT):
            text = pattern.sub(lambda match: _at_host(match, replace), text)
    if "~" in text:
        text = TILDE.sub(lambda match: replace(HOME_FOLDER, match["user"]), text)
    if "wandb.ai/" in text:
        text = WANDB_PAGE.sub(lambda match: _value(match, "user", replace), text)
    if any(word in lowered for word in ("user", "log", "account", "owner", "_by", "author", "entity")):
        for pattern in (USER_IN_ENVIRONMENT, USER):
            text = pattern.sub(lambda match: _user(match, replace), text)
    if "user" in lowered or "logged in" in lowered or " by " in lowered:
        text = USER_SPOKEN.sub(lambda match: _user_spoken(match, replace), text)
    return text


def mask_hosts(text: str, replace: Replace, *, spoken: bool = True) -> str:
    """Mask addresses and names of machines; those without a dot only where the text says what they are."""
    if "://" in text:
        text = URL.sub(lambda match: _url(match, replace), text)
    if ENDED.search(text):
        text = DOTTED.sub(lambda match: _dotted(match, replace), text)
    if "ip-" in text or "DESKTOP-" in text or "EC2AMAZ-" in text:
        text = CLOUD.sub(lambda match: _value(match, "host", replace), text)
    lowered = text.lower()
    if spoken and any(
        word in lowered for word in ("host", "node", "machine", "server", "addr", "computer", "fqdn", " on ")
    ):
        for pattern in (HOST_NAMED, HOST_SPOKEN, SLURM):
            text = pattern.sub(lambda match: _host(match, replace), text)
    if NUMBERED.search(text):
        for pattern in (IPV4, IPV4_NAMED):
            text = pattern.sub(lambda match: _ipv4(match, replace), text)
    if COLONS.search(text):
        text = MAC.sub(lambda match: _value(match, "mac", replace), text)
        text = IPV6.sub(lambda match: _ipv6(match, replace), text)
    return text


def _value(match: re.Match[str], kind: str, replace: Replace) -> str:
    """Mask the value inside a match."""
    return with_value(match, replace(kind, match["value"]))


def _user(match: re.Match[str], replace: Replace) -> str:
    value = match["value"]
    return match[0] if value.lower() in NO_USER else _value(match, "user", replace)


def _user_spoken(match: re.Match[str], replace: Replace) -> str:
    """Mask a name behind `user`; there it must be quoted, or stand behind a word that only names follow."""
    certain = match["quote"] or not match[0].lower().startswith("user")
    return _user(match, replace) if certain else match[0]


def _at_host(match: re.Match[str], replace: Replace) -> str:
    user, _, host = match["value"].partition("@")
    if user == "git" or user.lower() in NO_LOGIN:
        return match[0]
    masked = f"{replace('user', user)}@{host if is_public(host) else replace('host', host)}"
    return with_value(match, masked)


def is_public(host: str) -> bool:
    """Return whether a host is this machine, or a site of all the world."""
    name = host.lower().strip(".")
    return (
        name in NO_HOST
        or name.startswith(("127.", "0."))
        or bool(STORES.search(name))
        or any(name == site or name.endswith(f".{site}") for site in PUBLIC)
    )


def _url(match: re.Match[str], replace: Replace) -> str:
    """Mask the machine of a URL; a site of two words, and its www, is an organisation's and no machine."""
    host = match["value"].rstrip(".")
    labels = host.lower().split(".")
    site = len(labels) == 2 or (len(labels) == 3 and labels[0] == "www")
    address = all(label.isdigit() for label in labels)
    if address or is_public(host) or (site and labels[-1] in OF_SITES | OTHERS):
        return match[0]
    start, at = match.start("value"), match.start()
    return match[0][: start - at] + replace("host", host) + match[0][start - at + len(host) :]


def _dotted(match: re.Match[str], replace: Replace) -> str:
    """Mask a name with dots where it is a machine's and no attribute, file or site."""
    host = match["value"]
    labels = host.lower().split(".")
    ending, first = labels[-1], labels[0]
    numbered = any(map(str.isdigit, first)) or "-" in first
    if is_public(host) or not any(map(str.isalpha, first)) or host != host.strip("-"):
        return host
    if ending in INSIDE:
        certain = ending in ALWAYS or len(labels) > 2 or numbered
    elif ending in OF_SITES:
        certain = (len(labels) > 2 and first != "www") or (numbered and len(labels) > 2)
    else:
        certain = len(labels) > 2 and numbered
    return replace("host", host) if certain else host


def _host(match: re.Match[str], replace: Replace) -> str:
    value = match["value"]
    return match[0] if is_public(value) or NO_HOST_SHAPE.fullmatch(value) else _value(match, "host", replace)


def _ipv4(match: re.Match[str], replace: Replace) -> str:
    value = match["value"]
    if any(int(part) > 255 for part in value.split(".")) or value.startswith(("127.", "0.", "255.")):
        return match[0]
    if OF_A_VERSION.search(match.string[max(0, match.start() - 30) : match.start()]):
        return match[0]
    return replace("ip", value)


def _ipv6(match: re.Match[str], replace: Replace) -> str:
    value = match["value"]
    groups = value.split(":")
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return match[0]
    if address.is_loopback or address.is_unspecified or not any(map(str.isdigit, value)):
        return match[0]
    whole = len(groups) == 8 or any(len(group) >= MIN_HEX for group in groups)
    return _value(match, "ip", replace) if whole else match[0]
