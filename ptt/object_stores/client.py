"""The one place that speaks to an object store: list, read ranges, write whole objects, and say what went wrong."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError, PttError, SettingsError, no_room

SCHEME: Final = "s3:"
OTHER_SCHEMES: Final = (
    "s3a:", "s3n:", "gs:", "gcs:", "az:", "adl:", "abfs:", "abfss:", "wasb:", "wasbs:", "hdfs:", "dbfs:", "oss:", "hf:",
    "file:", "ftp:", "http:", "https:",
)  # fmt: skip
INSTALL: Final = "pip install 'ptt-forensics[s3]'"
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60  # without a byte: a store that is busy answers within seconds
ATTEMPTS: Final = 3  # at a request, and again at a body that is cut
CONNECTIONS: Final = 16  # a request waits some 20 ms for its first byte; these fill a line of 10 Gbit/s
CHUNK_BYTES: Final = 1 << 20
PART_BYTES: Final = 16 << 20  # of a multipart upload, in memory; so many connections may each hold one
MAX_PARTS: Final = 10_000  # that S3 allows
WHOLE_BYTES: Final = 1 << 30  # larger ones are written in parts; the protocol's own limit is 5 GB
DENIED: Final = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled"})
BAD_KEYS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure"})
STALE: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestTimeTooSkewed", "TokenRefreshRequired"})
GONE: Final = frozenset({"NoSuchKey", "404", "NotFound"})
CHANGED: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "InvalidRange", "416"})
ELSEWHERE: Final = frozenset(
    {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
ARCHIVED: Final = frozenset({"InvalidObjectState"})


def is_url(path: str | Path) -> bool:
    """Return whether a path is the URL of an object or a prefix; a Path has lost one of the two slashes."""
    return str(path).startswith(f"{SCHEME}/") or str(path) == SCHEME  # of `s3://` a Path leaves that


def refuse_other_stores(path: str | Path) -> None:
    """Raise for the URL of a store that is not read: it would be looked for as a folder."""
    text = str(path)
    others = tuple(f"{scheme}/" for scheme in (*OTHER_SCHEMES, SCHEME))
    if text.lower().startswith(others) and not is_url(text) and not Path(text).exists():
        scheme = text.partition(":")[0]
        raise SettingsError(
            f"{scheme}://: only s3:// is read; for another store give AWS_ENDPOINT_URL of its S3 interface, or copy "
            "the run here."
        )


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:  # bytes of the command line in no encoding
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Url:
    """A bucket and a key, or the beginning of keys."""

    bucket: str
    key: str

    @classmethod
    def parsed(cls, path: str | Path) -> Url:
        """Split `s3://bucket/key`; SettingsError where it names no bucket."""
        bucket, _, key = str(path).removeprefix(SCHEME).lstrip("/").partition("/")
        if not bucket:
            raise SettingsError("s3://: names no bucket; write s3://BUCKET/FOLDER.")
        if "\0" in key or not _is_text(key):
            raise SettingsError(f"s3://{bucket}: a key is a text in UTF-8 without NUL, and this one is not.")
        return cls(bucket=bucket, key=key.strip("/"))

    def __str__(self) -> str:
        """Write it as a user does."""
        return f"s3://{self.bucket}/{self.key}".rstrip("/")

    def below(self, rel: str) -> Url:
        """Return the URL of something below this one."""
        return Url(bucket=self.bucket, key=f"{self.key}/{rel}" if self.key else rel)

    def is_in(self, other: Url) -> bool:
        """Return whether it is another one, or lies below it."""
        return self.bucket == other.bucket and f"{self.key}/".startswith(f"{other.key}/" if other.key else "")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An object as the store lists it."""

    key: str
    size: int
    etag: str
    modified: datetime

    @property
    def mtime_ns(self) -> int:
        """Its time with the ETag below the second: whatever goes by a file's time goes by its content as well."""
        of_content = int.from_bytes(hashlib.sha256(self.etag.encode()).digest()[:4], "big") % 1_000_000_000
        return int(self.modified.timestamp()) * 1_000_000_000 + of_content


class ObjectError(Exception):
    """One object cannot be read, while the others may: it vanished, changed, or may not be read."""

    def __init__(self, why: str, *, gone: bool = False, closed: bool = False) -> None:
        super().__init__(why)
        self.gone, self.closed = gone, closed


class UnreachableError(InputError):
    """No answer came from a store: whatever else lies there cannot be read either."""


class ObjectStore:
    """A connection, by the credentials, region and endpoint that the environment and its profile name."""

    def __init__(self, url: Url, *, writes: bool = False) -> None:
        """Connect for this bucket; `writes`: an error is one of the place that output goes to."""
        self._url = url
        self._error: type[PttError] = SettingsError if writes else InputError
        self._unreachable: type[PttError] = SettingsError if writes else UnreachableError
        self._client = _client(url)
        self.bytes_read = 0

    @contextmanager
    def _errors(self, what: Url) -> Iterator[None]:
        """Turn what the library raises into a sentence of ours: theirs may quote a key or a signed address."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in GONE or code in CHANGED:
                why = "it disappeared" if code in GONE else "it changed while it was read"
                raise ObjectError(why, gone=code in GONE) from None
            if code in ARCHIVED:
                raise ObjectError("it lies in an archive tier; restore it first", closed=True) from None
            raise self._error(f"{what}: {_refusal(code, self._url)}") from None
        except (BotoCoreError, ValueError, OSError) as error:
            if no_room(error):
                raise
            raise self._unreachable(f"{what}: {_failure(error)}") from None

    def find(self, url: Url) -> Listed | None:
        """Return the object of exactly this key, or None."""
        if not url.key:
            return None
        first = next(self._pages(url, url.key, most=1), [])
        return next((item for item in first if item.key == url.key), None)

    def list_below(self, url: Url) -> Iterator[Listed]:
        """Yield the objects below a prefix in the order of their keys."""
        for page in self._pages(url, f"{url.key}/" if url.key else ""):
            yield from page

    def _pages(self, url: Url, prefix: str, most: int = 1000) -> Iterator[list[Listed]]:
        token: dict[str, str] = {}
        while True:
            try:
                with self._errors(url):
                    answer = self._client.list_objects_v2(Bucket=url.bucket, Prefix=prefix, MaxKeys=most, **token)
            except ObjectError:
                raise self._error(f"{url}: {_refusal('NoSuchBucket', url)}") from None
            yield [
                Listed(key=item["Key"], size=item["Size"], etag=item.get("ETag", ""), modified=item["LastModified"])
                for item in answer.get("Contents", ())
            ]
            following = answer.get("NextContinuationToken")
            if (
                most == 1
                or not answer.get("IsTruncated")
                or not following
                or token.get("ContinuationToken") == following
            ):
                return
            token = {"ContinuationToken": following}

    def read_into(self, item: Listed, file: BinaryIO, start: int, end: int) -> None:
        """Write bytes of an object to the same place of a file, if it is what was listed; ObjectError if not."""
        what = Url(bucket=self._url.bucket, key=item.key)
        at, cut = start, 0
        file.seek(start)
        while at < end:
            before = at
            try:
                with self._errors(what):
                    conditions = {"IfMatch": item.etag} if item.etag else {}
                    answer = self._client.get_object(
                        Bucket=what.bucket, Key=item.key, Range=f"bytes={at}-{end - 1}", **conditions
                    )
                if at and not str(answer.get("ContentRange", "")).startswith(f"bytes {at}-"):
                    answer["Body"].close()
                    raise self._error(f"{what}: the store cannot read from the middle of an object; copy the run here.")
                with closing(answer["Body"]) as body:
                    while at < end and (chunk := body.read(min(CHUNK_BYTES, end - at))):
                        file.write(chunk)
                        at += len(chunk)
                if at < end:
                    raise OSError("the connection was cut")
            except (ObjectError, PttError):
                raise
            except Exception as error:  # what libraries raise of a cut line has no common class
                if no_room(error) or not _is_of_connection(error):  # of the scratch folder, or a bug
                    raise
                cut = 1 if at > before else cut + 1
                if cut >= ATTEMPTS:
                    raise self._unreachable(f"{what}: {_failure(error)}") from None
            finally:
                self.bytes_read += at - before

    def write(self, path: Path, url: Url) -> None:
        """Write a file as one object: it is there whole, or as it was before."""
        size = path.stat().st_size
        try:
            with self._errors(url), path.open("rb") as file:
                if size <= WHOLE_BYTES:
                    self._client.put_object(
                        Bucket=url.bucket, Key=url.key, Body=file, ContentLength=size, ContentType=_type_of(path)
                    )
                else:
                    self._write_parts(file, url, _type_of(path))
        except ObjectError:
            raise self._error(f"{url}: {_refusal('NoSuchBucket', url)}") from None

    def _write_parts(self, file: BinaryIO, url: Url, kind: str) -> None:
        place = {"Bucket": url.bucket, "Key": url.key}
        upload = {**place, "UploadId": self._client.create_multipart_upload(**place, ContentType=kind)["UploadId"]}
        part_bytes = max(PART_BYTES, -(-os.fstat(file.fileno()).st_size // MAX_PARTS))
        try:
            parts: list[dict[str, object]] = []
            while chunk := file.read(part_bytes):
                number = len(parts) + 1
                answer = self._client.upload_part(**upload, PartNumber=number, Body=chunk)
                parts.append({"ETag": answer["ETag"], "PartNumber": number})
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:  # also Ctrl-C: parts of nothing are paid for
            with suppress(Exception):  # what stopped the upload is the answer, not that its parts are left as well
                self._client.abort_multipart_upload(**upload)
            raise

    def delete(self, url: Url) -> None:
        """Delete an object, if it is there."""
        try:
            with self._errors(url):
                self._client.delete_object(Bucket=url.bucket, Key=url.key)
        except ObjectError:
            pass


def same_content(path: Path, item: Listed) -> bool:
    """Return whether a file is what an object holds, by the MD5 that stores use as the ETag of objects in one part."""
    if path.stat().st_size != item.size:
        return False
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest() == item.etag.strip('"')


def _client(url: Url) -> Any:
    try:
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise SettingsError(f"{url}: reading object stores needs botocore; {INSTALL}.") from None
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        request_checksum_calculation="when_required",  # other stores than Amazon's refuse trailing checksums
        response_checksum_validation="when_required",
        s3=_addressing(),
    )
    try:
        session = botocore.session.Session()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
        client = session.create_client("s3", region_name=region, config=config)
        if session.get_credentials() is None:
            raise SettingsError(f"{url}: {NO_CREDENTIALS}")
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"{url}: {_failure(error)}") from None
    return client


NO_CREDENTIALS: Final = (
    "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE of ~/.aws/config."
)


def _addressing() -> Mapping[str, str]:
    """Put the bucket into the path where an endpoint is given: names below localhost or an address lead nowhere."""
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return {"addressing_style": "path"} if given else {}


def _endpoint() -> str:
    """Return the host that is asked, without the user and password that its URL may hold."""
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    host = urlsplit(given).netloc.rpartition("@")[2]
    return f" at {host}" if host else ""


def _refusal(code: str, url: Url) -> str:
    """Say what a store answered, and what to do."""
    if code in BAD_KEYS:
        return f"the store does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY " \
            "and AWS_PROFILE, and that AWS_ENDPOINT_URL is of the store that gave them."  # fmt: skip
    if code in STALE:
        return f"the credentials are no longer valid ({code}); log in again, and check this machine's clock."
    if code in DENIED:
        return "access is denied; it needs s3:ListBucket and s3:GetObject, and s3:PutObject and s3:DeleteObject for " \
            "output (or AWS_PROFILE names the wrong profile)."  # fmt: skip
    if code == "NoSuchBucket":
        return f"there is no bucket {url.bucket}{_endpoint()}; check its name, AWS_REGION and AWS_ENDPOINT_URL."
    if code in ELSEWHERE:
        return "the bucket lies in another region; set AWS_REGION to it."
    plain = "".join(sign for sign in code if sign.isalnum())[:40]
    return f"the store answered with an error ({plain or 'without a name'}); try again later."


def _failure(error: BaseException) -> str:
    """Say what kept us from an answer, and what to do; none of the library's words but its error's name."""
    name = type(error).__name__
    if name in {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}:
        return NO_CREDENTIALS
    if name == "ProfileNotFound":
        return "AWS_PROFILE names a profile that ~/.aws/config and ~/.aws/credentials lack; run aws configure."
    if "SSO" in name or "Token" in name or "Refresh" in name or "Login" in name:
        return f"the credentials are no longer valid ({name}); log in again, e.g. with aws sso login."
    if name in {"InvalidRegionError", "NoRegionError"}:
        return "AWS_REGION is no region; set it to the bucket's."
    if name == "ParamValidationError":
        return "is no name that a bucket or an object can have; write s3://BUCKET/FOLDER."
    if name in {"SSLError", "InvalidProxiesConfigError", "ProxyConnectionError"}:
        return f"no safe connection to the store{_endpoint()} ({name}); check AWS_CA_BUNDLE and HTTPS_PROXY."
    if isinstance(error, ValueError) and not _is_of_connection(error):
        return "AWS_ENDPOINT_URL is no address; write it as https://HOST:PORT."
    return f"the connection to the store{_endpoint()} failed ({name}); check AWS_ENDPOINT_URL and the network, and " \
        "run the same command again."  # fmt: skip


def _is_of_connection(error: BaseException) -> bool:
    """Return whether a connection failed in the middle: by the library, urllib3 below it, or the system."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in {"botocore", "urllib3", "http"}


def _type_of(path: Path) -> str:
    kinds = {".html": "text/html; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml",
             ".png": "image/png", ".md": "text/markdown; charset=utf-8"}  # fmt: skip
    return kinds.get(path.suffix, "application/octet-stream")
