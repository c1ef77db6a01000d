"""Made-up secrets of many kinds, and a run that holds them wherever a run holds anything."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from samples_carriers import RUN, number, sized, wandb_file, wandb_history, wandb_item

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
SEED = 20  # another one gives other secrets of the same kinds


@dataclass(frozen=True)
class Secret:
    """A line that a program prints, and the parts of it that nobody may see."""

    kind: str
    line: str
    hidden: tuple[str, ...]
    name: str = ""  # what of it is told even without the words around it, as a name of a metric or a tool


Draw = Callable[[str, int], str]


def _draw(generator: random.Random) -> Draw:
    def draw(alphabet: str, count: int) -> str:
        text = "".join(generator.choice(alphabet) for _ in range(count))
        return text if alphabet not in (ALNUM, LOWER) else f"{text[:-5]}a7Xq9"  # no word by chance

    return draw


def secrets(seed: int = SEED) -> list[Secret]:
    """Return sixty and more secrets of more than twenty kinds, the same for the same seed."""
    generator = random.Random(seed)
    draw = _draw(generator)
    return [*_keys(draw), *_credentials(draw), *_people(draw), *_machines(draw, generator)]


def _keys(draw: Draw) -> list[Secret]:
    prefixed = {
        "github": ("ghp_", ALNUM, 36), "github cut": ("ghp_", ALNUM, 20), "github app": ("ghs_", ALNUM, 36),
        "github fine-grained": ("github_pat_", ALNUM, 82), "gitlab": ("glpat-", ALNUM, 20),
        "hugging face": ("hf_", ALNUM, 34), "openai": ("sk-", ALNUM, 48), "openai project": ("sk-proj-", ALNUM, 60),
        "anthropic": ("sk-ant-api03-", ALNUM, 93), "aws": ("AKIA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
        "google": ("AIza", ALNUM, 35), "google oauth": ("ya29.", ALNUM, 60), "slack": ("xoxb-1234567890-", ALNUM, 24),
        "stripe": ("sk_live_", ALNUM, 24), "npm": ("npm_", ALNUM, 36), "pypi": ("pypi-AgEIcHlwaS5vcmc", ALNUM, 60),
        "sendgrid": ("SG.", ALNUM, 66), "groq": ("gsk_", ALNUM, 52), "nvidia": ("nvapi-", ALNUM, 64),
        "xai": ("xai-", ALNUM, 80), "perplexity": ("pplx-", ALNUM, 48), "replicate": ("r8_", ALNUM, 37),
        "wandb": ("wandb_v1_", ALNUM, 60), "databricks": ("dapi", HEX, 32), "digitalocean": ("dop_v1_", HEX, 64),
        "docker": ("dckr_pat_", ALNUM, 27), "telegram": ("123456789:AA", ALNUM, 33), "vault": ("hvs.", ALNUM, 90),
        "random": ("", ALNUM, 40),
    }  # fmt: skip
    made = {kind: prefix + draw(alphabet, count) for kind, (prefix, alphabet, count) in prefixed.items()}
    keys = [Secret(kind, f"request failed with {key}, retry", (key,), key) for kind, key in made.items()]
    parts = [base64.urlsafe_b64encode(f'{{"{draw(LOWER, 9)}":"{draw(LOWER, 12)}"}}'.encode()).decode() for _ in "ab"]
    jwt = ".".join([f"eyJ{parts[0][3:].rstrip('=')}", parts[1].rstrip("="), draw(ALNUM, 43)])
    body = draw(ALNUM, 64)
    pem = f"-----BEGIN RSA PRIVATE KEY-----\\n{body}\\n-----END RSA PRIVATE KEY-----"
    ssh = f"AAAAB3NzaC1yc2E{draw(ALNUM, 80)}"
    hook = f"T{draw(ALNUM, 9)}/B{draw(ALNUM, 9)}/{draw(ALNUM, 24)}"
    return [
        *keys,
        Secret("jwt", f"session {jwt} ended", (jwt,), jwt),
        Secret("private key", f"cannot load {pem}", (body,)),
        Secret("ssh key", f"offering ssh-rsa {ssh} to the server", (ssh,)),
        Secret("slack webhook", f"posting to https://hooks.slack.com/services/{hook}", (hook,)),
    ]


def _credentials(draw: Draw) -> list[Secret]:
    word, aws, hexed = draw(LOWER, 11), draw(ALNUM, 40), draw(HEX, 40)
    basic = base64.b64encode(f"{draw(LOWER, 8)}:{word}".encode()).decode()
    bearer, sas, flag = draw(ALNUM, 40), draw(ALNUM, 44), draw(LOWER, 14)
    return [
        Secret("password", f"password={word}1", (f"{word}1",)),
        Secret("password in JSON", f'{{"db_password": "{word} 2 words"}}', (f"{word} 2",)),
        Secret("password spoken", f"login refused, the password is '{word}3'", (f"{word}3",)),
        Secret("password option", f"run.py --password {word}4 --lr 1e-6", (f"{word}4",)),
        Secret("passphrase", f"passphrase: {word}5", (f"{word}5",)),
        Secret("URL", f"connect postgresql://svc:{word}6@db7.corp.example:5432/runs", (f"{word}6", "db7.corp")),
        Secret("URL without a user", f"redis://:{word}7@10.2.3.4:6379/0 refused", (f"{word}7", "10.2.3.4")),
        Secret("bearer", f"Authorization: Bearer {bearer}", (bearer,)),
        Secret("basic", f"authorization: Basic {basic}", (basic,)),
        Secret("aws secret", f"AWS_SECRET_ACCESS_KEY={aws}", (aws,)),
        Secret("wandb in hex", f"WANDB_API_KEY={hexed}", (hexed,)),
        Secret("environment", f"COMET_API_KEY='{flag}9'", (f"{flag}9",)),
        Secret("client secret", f'"client_secret": "{flag}8"', (f"{flag}8",)),
        Secret("query", f"GET https://store.example.com/x?sig={sas}&X-Amz-Signature={hexed}5", (sas, f"{hexed}5")),
        Secret("cookie", f"Cookie: session={flag}7; csrf={flag}6", (f"{flag}7", f"{flag}6")),
        Secret("netrc", f"machine api.corp.example login svc password {word}8", (f"{word}8",)),
        Secret("curl", f"curl -u svc:{word}9 https://api.corp.example", (f"{word}9",)),
        Secret("azure", f"AccountName=runs;AccountKey={sas}Zz8w==;EndpointSuffix=x", (f"{sas}Zz8w",)),
    ]  # fmt: skip


def _people(draw: Draw) -> list[Secret]:
    user = f"k{draw(string.ascii_lowercase, 7)}"
    return [
        Secret("e-mail", f"mail {user}.smith@corp.example about it", (f"{user}.smith",), f"{user}.smith@corp.example"),
        Secret(
            "e-mail with a plus",
            f"owner <{user}+runs@mail.example.org>",
            (f"{user}+runs",),
            f"{user}+runs@mail.example.org",
        ),
        Secret("home", f'File "/home/{user}a/train.py", line 3', (f"{user}a",), f"/home/{user}a/tool"),
        Secret("home on a Mac", f"saved to /Users/{user}b/out", (f"{user}b",), f"/Users/{user}b/tool"),
        Secret("home on Windows", f"C:\\Users\\{user}c\\run.log is locked", (f"{user}c",)),
        Secret("home on a share", f"/mnt/nfs/home/{user}d/data is full", (f"{user}d",)),
        Secret("user", f'permission denied for user "{user}e"', (f"{user}e",)),
        Secret("user of the environment", f"USER={user}f SHELL=/bin/bash", (f"{user}f",)),
        Secret("user of a tracker", f"wandb: Currently logged in as: {user}g (team)", (f"{user}g",)),
        Secret("prompt", f"{user}h@{user}i-07:~/runs$ python train.py", (f"{user}h", f"{user}i")),
    ]


def _machines(draw: Draw, generator: random.Random) -> list[Secret]:
    host = f"z{draw(string.ascii_lowercase, 6)}"
    ip = ".".join(["10", *(str(generator.randint(1, 254)) for _ in range(3))])
    return [
        Secret("host", f"out of memory on {host}-1.corp.example", (f"{host}-1",)),
        Secret("host of a cloud", f"lost ip-10-1-2-3.{host}2.internal", (f"{host}2", "10-1-2-3")),
        Secret("host of a URL", f"cannot reach http://{host}-3:8000/v1", (f"{host}-3",)),
        Secret("host named", f"HTTPConnectionPool(host='{host}-4', port=8000)", (f"{host}-4",)),
        Secret("host of a scheduler", f"*** JOB 12 ON {host}5 CANCELLED AT 2026-01-01 ***", (f"{host}5",)),
        Secret("address", f"connect to {ip}:29500 failed", (ip,)),
        Secret("address of version 6", "connect to [fd12:3456:789a:1::17]:29500 failed", ("fd12:3456",)),
        Secret("hardware address", "device 00:1a:2b:3c:4d:5e is down", ("00:1a:2b",)),
    ]


def plant(folder: Path, planted: list[Secret]) -> None:
    """Write a run whose every place holds secrets: what training logs, sets, samples and leaves behind."""
    lines = [secret.line for secret in planted]
    folder.mkdir(parents=True)
    _console(folder, lines)
    _metrics(folder, planted, lines)
    _trackers(folder, lines)
    _samples(folder, planted, lines)


def _console(folder: Path, lines: list[str]) -> None:
    text = [f"{{'loss': {0.5 + at % 3}, 'reward': {at}.0, 'step': {at + 1}}}" for at in range(12)]
    text += [line for secret in lines for line in (f"RuntimeError: {secret}", f"ERROR: {secret}", f"WARNING: {secret}")]
    text += [
        "Traceback (most recent call last):",
        *(f'  File "/home/kim/a.py", line 1, in f\n    {line}' for line in lines),
    ]
    text += [f"ValueError: {lines[0]}"]
    (folder / "train.log").write_text("\n".join(text) + "\n", encoding="utf-8")
    for at, line in enumerate(lines):  # the last line of a log is what is quoted of it
        (folder / f"rank{at}.log").write_text(
            f"{{'loss': 0.5, 'step': 1}}\ntorch.OutOfMemoryError: CUDA {line}\n", "utf-8"
        )


def _metrics(folder: Path, planted: list[Secret], lines: list[str]) -> None:
    names = [secret.name for secret in planted if secret.name]
    rows = [
        {"step": at + 1, "loss": 0.5, "reward": float(at), "note": lines[at % len(lines)], "host": "q-host-9"}
        | {f"env/{name}/reward": 1.0 for name in names[at % 8 :: 8]}
        | {f"rewards/{name}": 0.5 for name in names[at % 4 :: 4]}
        for at in range(len(lines))
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    settings = {f"extra_{at}": line for at, line in enumerate(lines)} | {"api_key": "pl4in-v4lue-x", "user": "kimsuk"}
    state = {"global_step": 3, "log_history": rows[:3], "max_steps": 3, "trial_params": settings}
    (folder / "trainer_state.json").write_text(json.dumps(state), "utf-8")
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    (folder / "args.json").write_text(json.dumps(settings), "utf-8")
    (folder / "env.txt").write_text("\n".join(lines), "utf-8")
    named = next(secret.hidden[0] for secret in planted if secret.kind == "github")
    (folder / f"{named}.jsonl").write_text('{"step": 1, "loss": 0.5}\n', "utf-8")


def _trackers(folder: Path, lines: list[str]) -> None:
    items = b"".join(
        sized(1, wandb_item(f"note_{at}", json.dumps(line), nested=False)) for at, line in enumerate(lines)
    )
    run = sized(17, sized(1, "abc") + sized(4, items) + sized(13, "q-host-9"))
    output = [sized(13, number(1, 1) + sized(3, f"ValueError: {line}\n")) for line in lines]
    history = [wandb_history({"train/loss": "0.25", "train/global_step": str(at)}, at) for at in range(3)]
    (folder / "run-abc.wandb").write_bytes(wandb_file([run, *history, *output, sized(18, number(1, 1))]))
    database = sqlite3.connect(folder / "mlflow.db")
    database.executescript(
        "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);"
        "CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);"
        "CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);"
    )
    database.executemany("INSERT INTO metrics VALUES (?, ?, 1700000000000, ?, 1, 0)", [("loss", 0.5, RUN)])
    for table in ("params", "tags"):
        values = [(f"setting_{at}", line, RUN) for at, line in enumerate(lines)]
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
    database.commit()
    database.close()


def _samples(folder: Path, planted: list[Secret], lines: list[str]) -> None:
    names = [secret.name for secret in planted if secret.name]
    completions = folder / "completions"
    completions.mkdir()
    for step in range(1, 4):
        pl.DataFrame(
            {
                "step": [step] * len(lines),
                "prompt": lines,
                "completion": lines,
                "reward_of_tests": [0.5] * len(lines),
                "advantage": [0.0] * len(lines),
            }
        ).write_parquet(completions / f"completions_{step:05d}.parquet")
    turns = [
        {
            "role": "assistant",
            "content": line,
            "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": json.dumps({"q": line})}}],
        }
        for line in lines
    ]
    answers = [{"role": "tool", "tool_call_id": "c", "content": f"Error: {line}"} for line in lines]
    rows = [
        {"example_id": at, "reward": 0.5, "prompt": [{"role": "user", "content": line}], "task": names[at % len(names)],
         "completion": [turns[at], answers[at]], "info": {"error": line}}
        for at, line in enumerate(lines)
    ]  # fmt: skip
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    tokens = folder / "tokens"
    tokens.mkdir()
    for step in range(1, 9):
        count = 24
        pl.DataFrame(
            {
                "step": [step] * count,
                "sample_id": [f"{step}-{at}-{names[at % len(names)]}" for at in range(count)],
                "env": [names[at % 3] for at in range(count)],
                "tool_names": [[names[at % 5]] for at in range(count)],
                "source_of_prompt": [lines[at % 4] for at in range(count)],
                "model_mask": [[True] * 20 + [False] * 5 + [True] * 20] * count,
                "policy_logp": [
                    [-1.0 - 0.01 * t - 0.4 * step * (t > 24) * (at % 3 == 0) for t in range(45)] for at in range(count)
                ],
                "ref_logp": [[-1.0 - 0.01 * t - 0.001 * at for t in range(45)] for at in range(count)],
            }
        ).write_parquet(tokens / f"step_{step:06d}.parquet")
