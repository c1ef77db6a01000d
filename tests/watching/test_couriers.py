"""What is told to others: over real sockets and real processes, which are slow, refuse, die, or are not there."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ptt.diagnostics.errors import SettingsError
from ptt.watching import couriers
from ptt.watching.couriers import MAX_WAITING, TRIES, Courier, command, webhook

STOP = {"kind": "stop", "rule": "kl-over-target", "step": 212, "since_step": 180, "value": 0.9, "limit": 0.5,
        "text": "kl-over-target since step 180: KL of my_secret_tool is 0.9 nats"}  # fmt: skip


class Hook(BaseHTTPRequestHandler):
    """Answers as the test says: a code, after some seconds, or not at all."""

    answers: ClassVar[list[int]] = []
    bodies: ClassVar[list[Any]] = []
    seconds: ClassVar[float] = 0.0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.seconds)
        code = self.answers.pop(0) if self.answers else 200
        if code == 0:  # it dies in the middle
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.bodies.extend([json.loads(body)] if code == 200 else [])
        self.send_response(code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(couriers, "FIRST_PAUSE", 0.01)
    Hook.answers, Hook.bodies, Hook.seconds = [], [], 0.0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/services/T0/B0/secret-path"
    server.shutdown()
    server.server_close()


def told(courier: Courier, *notices: dict[str, Any]) -> None:
    for notice in notices:
        courier.give(notice)
    courier.close()


def test_a_webhook_gets_a_text_and_numbers_and_no_name(hook: str) -> None:
    said: list[str] = []
    told(Courier("--webhook", webhook(hook, "runs/my_secret_run", names=False), say=said.append), STOP)
    (body,) = Hook.bodies
    assert body["text"].endswith("stop at step 212: kl-over-target, since step 180")
    assert {"rule": "kl-over-target", "step": 212, "value": 0.9}.items() <= body.items()
    assert "secret" not in json.dumps(body)
    assert said == []


def test_names_are_sent_where_the_user_says_so(hook: str) -> None:
    told(Courier("--webhook", webhook(hook, "runs/my_run", names=True), say=print), STOP)
    assert "my_secret_tool" in Hook.bodies[0]["text"]
    assert Hook.bodies[0]["run"] == "runs/my_run"


@pytest.mark.parametrize("trouble", [503, 0])
def test_a_server_that_refuses_or_dies_is_tried_again(hook: str, trouble: int) -> None:
    Hook.answers = [trouble, trouble]
    courier = Courier("--webhook", webhook(hook, "run", names=False), say=print)
    told(courier, STOP)
    assert len(Hook.bodies) == 1
    assert courier.undelivered == []


def test_what_cannot_be_delivered_is_said_without_the_address(hook: str) -> None:
    Hook.answers = [500] * TRIES
    said: list[str] = []
    told(Courier("--webhook", webhook(hook, "run", names=False), say=said.append), STOP)
    assert said == ["--webhook: a stop could not be delivered: the server answered 500."]


def test_a_server_that_is_not_there_is_said_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "FIRST_PAUSE", 0.01)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/secret-path"
    said: list[str] = []
    told(Courier("--webhook", webhook(url, "run", names=False), say=said.append), STOP)
    assert said == ["--webhook: a stop could not be delivered: Connection refused."]


def test_a_slow_server_holds_nobody_up(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "WEBHOOK_SECONDS", 0.1)
    monkeypatch.setattr(couriers, "CLOSE_SECONDS", 0.2)
    Hook.seconds = 1.0
    said: list[str] = []
    courier = Courier("--webhook", webhook(hook, "run", names=False), say=said.append)
    begun = time.monotonic()
    for step in range(2 * MAX_WAITING):
        courier.give({**STOP, "step": step})
    given = time.monotonic() - begun
    courier.close()
    assert given < 0.5
    assert time.monotonic() - begun < 1.0
    assert len(courier.undelivered) <= MAX_WAITING + 1  # the next watch sends them
    assert "too many are waiting" in said[0]


def test_only_web_addresses_are_taken_and_a_wrong_one_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as refused:
        webhook("file:///etc/secret", "run", names=False)
    assert "secret" not in str(refused.value)


def test_a_command_gets_the_finding_on_its_input_and_no_shell(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", str(out), "; rm -rf x"]
    told(Courier("--on-stop", command(words), tries=1, say=print), STOP)
    assert json.loads(out.read_text()) == STOP


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([sys.executable, "-c", "raise SystemExit(7)"], "it ended with code 7"),
        (["/nonexistent/command"], "No such file or directory"),
        ([sys.executable, "-c", "import time; time.sleep(9)"], "it did not end within 0.3 s"),
    ],
)
def test_a_command_that_fails_is_said(words: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "COMMAND_SECONDS", 0.3)
    said: list[str] = []
    told(Courier("--on-stop", command(words), tries=1, say=said.append), STOP)
    assert said == [f"--on-stop: a stop could not be delivered: {why}."]
