"""A server of the S3 interface on this machine, which counts what it sends and can fail in the middle."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from ptt.cli.app import app

BUCKET = "runs"
SECRET = "verysecretvalue"


class Server:
    """Moto behind a layer that counts the bytes of objects sent and plays faults."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.reset()

    def reset(self) -> None:
        self.sent = 0
        self.requests: list[tuple[str, str]] = []
        self.cut: Callable[[str, str], bool] = lambda _method, _path: False
        self.refuse: Callable[[str, str], tuple[str, str] | None] = lambda _method, _path: None
        self.after_listing: Callable[[], None] | None = None
        self.ignores_ranges = False

    def stop(self) -> None:
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        with self._lock:
            self.requests.append((method, path))
        if (refusal := self.refuse(method, path)) is not None:
            status, code = refusal
            body = f"<Error><Code>{code}</Code><Message>key verysecretvalue</Message></Error>".encode()
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        cut = self.cut(method, path)
        if cut and method == "PUT":
            raise ConnectionResetError  # before anything is kept
        if self.ignores_ranges:
            environ.pop("HTTP_RANGE", None)
        body = b"".join(self._app(environ, start_response))
        listing = method == "GET" and "list-type" in query
        if listing and self.after_listing is not None and "max-keys=1&" not in f"{query}&":
            act, self.after_listing = self.after_listing, None
            act()
        if cut:
            return [body[: len(body) // 2]]
        if method == "GET" and not listing:
            with self._lock:
                self.sent += len(body)
        return [body]


class Bucket:
    """A bucket as a test fills it."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def put_folder(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def sizes(self, prefix: str = "") -> dict[str, int]:
        answer = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return {item["Key"]: item["Size"] for item in answer.get("Contents", ())}

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content


def command(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert SECRET not in result.output
    assert "Traceback" not in result.output
    assert "ptt-s3-" not in result.output, "a scratch folder is nothing to the user"
    return result
