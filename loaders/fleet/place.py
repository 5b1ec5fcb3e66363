"""Places: where a fleet's store lies. A folder, of this machine or shared, or a prefix in an S3 bucket.

What is asked of a place is little, so that any of them will do: whole files are put and read by name, and `create`
makes a file only where there is none, which of many writers at one moment exactly one is told.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from mycroft.errors import MycroftError
from mycroft.loaders.collector.log import sync_folder
from mycroft.tracer.arrow import RecordBatch, pa, pq

_MOST_BYTES: Final = 512 << 20
# A file may say that it has any number of rows: so many are in memory at once.
_BATCH_ROWS: Final = 131_072


class PlaceError(MycroftError):
    """A place that cannot be used: names it and says why."""


class Place(Protocol):
    """Files by name, `/` between folders."""

    url: str

    def put(self, name: str, source: bytes | Path) -> None:
        """Write a file; whoever reads sees all of it or none."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none of that name; return whether it was this call that did."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return a file, None: there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file; that there is none is fine."""
        ...

    def sweep(self, *, older_than_s: float, now: float) -> int:
        """Remove what writers that died had not written to the end; return how many files."""
        ...

    def relation(self, names: Sequence[str]) -> Any:
        """Return Parquet files as what a query of `loaders.store` reads. Nothing is read yet."""
        ...

    def rows(self, name: str, columns: Sequence[str]) -> Iterator[RecordBatch]:
        """Yield some columns of one Parquet file, those of text as dictionaries; one it does not have is left out."""
        ...

    def notes(self, name: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Return what the footer of a Parquet file has under some keys, where it has anything."""
        ...


def open_place(url: str) -> Place:
    """Return the place of an address: `s3://bucket/prefix`, `file:///folder` or a path.

    Raises:
        PlaceError: there is no such kind of place, or what it needs is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return _s3(url, parts.netloc, parts.path.strip("/"))
    if parts.scheme == "file":
        return FolderPlace(Path(parts.path))
    if "://" in url:
        raise PlaceError(f"{url}: a store lies in a folder or at s3://bucket/prefix")
    return FolderPlace(Path(url))


def _checked(name: str) -> str:
    """Manifests name files, and whoever writes to a shared place could write anything into one."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or "\\" in name or not name.isprintable():
        raise PlaceError(f"{name[:80]!r} is no name of a file in a store")
    return name


class FolderPlace:
    """A folder. On a shared file system too: it needs renaming and hard links, as NFS, Lustre and others have them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.url = str(self._folder)

    def _part(self, name: str, source: bytes | Path) -> tuple[Path, Path]:
        path = self._folder / _checked(name)
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with part.open("wb") as sink:
                if isinstance(source, Path):
                    with source.open("rb") as rows:
                        while block := rows.read(1 << 20):
                            sink.write(block)
                else:
                    sink.write(source)
                sink.flush()
                os.fsync(sink.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise PlaceError(f"{path}: cannot be written ({error.strerror or error})") from error
        return path, part

    def put(self, name: str, source: bytes | Path) -> None:
        """Write a file; it is on disk when this returns.

        Raises:
            PlaceError: it cannot be written.
        """
        path, part = self._part(name, source)
        try:
            part.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise PlaceError(f"{path}: cannot be written ({error.strerror or error})") from error

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none of that name; return whether it was this call that did.

        Raises:
            PlaceError: it cannot be written.
        """
        path, part = self._part(name, data)
        try:
            # Linking fails where the name is taken, also between machines.
            path.hardlink_to(part)
            sync_folder(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise PlaceError(f"{path}: cannot be written ({error.strerror or error})") from error
        finally:
            part.unlink(missing_ok=True)
        return True

    def get(self, name: str) -> bytes | None:
        """Return a file, None: there is none.

        Raises:
            PlaceError: it cannot be read, or is far too large.
        """
        path = self._folder / _checked(name)
        try:
            with path.open("rb") as source:
                data = source.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlaceError(f"{path}: cannot be read ({error.strerror or error})") from error
        if len(data) > _MOST_BYTES:
            raise PlaceError(f"{path}: larger than {_MOST_BYTES >> 20} MiB")
        return data

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, sorted; those that are being written are not there yet."""
        root = self._folder / _checked(folder)
        found = (path for path in root.rglob("*") if not path.name.startswith(".") and path.is_file())
        return sorted(path.relative_to(self._folder).as_posix() for path in found)

    def delete(self, name: str) -> None:
        """Remove a file; that there is none is fine."""
        (self._folder / _checked(name)).unlink(missing_ok=True)

    def sweep(self, *, older_than_s: float, now: float) -> int:
        """Remove what writers that died had not written to the end; return how many files."""
        gone = 0
        for path in self._folder.rglob(".*.tmp"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > older_than_s:
                    path.unlink()
                    gone += 1
        return gone

    def relation(self, names: Sequence[str]) -> Any:
        """Return Parquet files as what a query of `loaders.store` reads."""
        return tuple(str(self._folder / _checked(name)) for name in names)

    def rows(self, name: str, columns: Sequence[str]) -> Iterator[RecordBatch]:
        """Yield some columns of one Parquet file, those of text as dictionaries; one it does not have is left out.

        Raises:
            PlaceError: it is missing or damaged.
        """
        path = str(self._folder / _checked(name))
        try:
            yield from _batches(path, columns)
        except (pa.ArrowException, OSError) as error:
            raise PlaceError(f"{path}: cannot be read ({_first_line(error)})") from error

    def notes(self, name: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Return what the footer of a Parquet file has under some keys, where it has anything.

        Raises:
            PlaceError: it is missing or damaged.
        """
        path = str(self._folder / _checked(name))
        try:
            with pa.OSFile(path) as source:
                return _notes(source, keys)
        except (pa.ArrowException, OSError) as error:
            raise PlaceError(f"{path}: cannot be read ({_first_line(error)})") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How a bucket is reached; None: as Amazon has it. From `$AWS_ENDPOINT_URL` and so on, as other tools have it."""

    key: str | None
    secret: str | None
    token: str | None
    region: str
    endpoint: str | None

    @classmethod
    def of_environment(cls) -> S3Settings:
        """Return what the environment says."""
        env = os.environ
        return cls(
            key=env.get("AWS_ACCESS_KEY_ID"),
            secret=env.get("AWS_SECRET_ACCESS_KEY"),
            token=env.get("AWS_SESSION_TOKEN"),
            region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
            endpoint=env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL"),
        )


def _s3(url: str, bucket: str, prefix: str) -> Place:
    if not bucket:
        raise PlaceError(f"{url}: names no bucket; expected s3://bucket/prefix")
    try:
        stores = importlib.import_module("obstore.store")
        obstore = importlib.import_module("obstore")
    except ImportError as error:
        raise PlaceError(f"{url}: what reads buckets is not installed; pip install obstore") from error
    return S3Place(url, bucket, prefix, S3Settings.of_environment(), stores, obstore)


class S3Place:
    """A prefix in a bucket of S3, or of a server that speaks it and takes `If-None-Match` when it writes."""

    def __init__(self, url: str, bucket: str, prefix: str, settings: S3Settings, stores: Any, obstore: Any) -> None:
        self.url = url.rstrip("/")
        self._settings = settings
        self._bucket = bucket
        self._prefix = prefix
        self._errors = obstore.exceptions
        given = {
            "access_key_id": settings.key,
            "secret_access_key": settings.secret,
            "session_token": settings.token,
            "endpoint": settings.endpoint,
        }
        plain = (settings.endpoint or "").startswith("http://")
        self._store = stores.S3Store(
            bucket,
            prefix=prefix or None,
            region=settings.region,
            client_options={"allow_http": plain, "timeout": "60s", "connect_timeout": "10s"},
            retry_config={"max_retries": 4, "retry_timeout": _seconds(60)},
            **{name: value for name, value in given.items() if value is not None},
        )

    def _failed(self, name: str, error: Exception) -> PlaceError:
        return PlaceError(f"{self.url}/{name}: {_first_line(error)}")

    def put(self, name: str, source: bytes | Path) -> None:
        """Write a file; it is there when this returns.

        Raises:
            PlaceError: the server does not take it.
        """
        try:
            self._store.put(_checked(name), source)
        except (self._errors.BaseError, OSError) as error:
            raise self._failed(name, error) from error

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none of that name; return whether it was this call that did.

        Raises:
            PlaceError: the server does not take it. It may have, all the same: its answer can be lost.
        """
        try:
            self._store.put(_checked(name), data, mode="create")
        except self._errors.AlreadyExistsError:
            # Or an earlier try of this very call was taken, and its answer lost on the way.
            return self.get(name) == data
        except (self._errors.BaseError, OSError) as error:
            raise self._failed(name, error) from error
        return True

    def get(self, name: str) -> bytes | None:
        """Return a file, None: there is none.

        Raises:
            PlaceError: it cannot be read, or is far too large.
        """
        try:
            found = self._store.get(_checked(name))
            if found.meta["size"] > _MOST_BYTES:
                raise PlaceError(f"{self.url}/{name}: larger than {_MOST_BYTES >> 20} MiB")
            return bytes(found.bytes())
        except (self._errors.NotFoundError, FileNotFoundError):
            return None
        except (self._errors.BaseError, OSError) as error:
            raise self._failed(name, error) from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, sorted.

        Raises:
            PlaceError: the server does not say.
        """
        try:
            return sorted(str(entry["path"]) for batch in self._store.list(_checked(folder)) for entry in batch)
        except (self._errors.BaseError, OSError) as error:
            raise self._failed(folder, error) from error

    def delete(self, name: str) -> None:
        """Remove a file; that there is none is fine.

        Raises:
            PlaceError: the server does not.
        """
        try:
            self._store.delete(_checked(name))
        except (self._errors.NotFoundError, FileNotFoundError):
            return
        except (self._errors.BaseError, OSError) as error:
            raise self._failed(name, error) from error

    def sweep(self, *, older_than_s: float, now: float) -> int:
        """Return 0: an upload that was not ended is no file, and the bucket's own rules remove it."""
        return 0

    def relation(self, names: Sequence[str]) -> Any:
        """Return Parquet files as what a query of `loaders.store` reads: a dataset of Arrow, read by its own S3."""
        dataset = importlib.import_module("pyarrow.dataset")
        paths = ["/".join(part for part in (self._bucket, self._prefix, _checked(name)) if part) for name in names]
        try:
            return dataset.dataset(paths, format="parquet", filesystem=self._filesystem(), partitioning=None)
        except (pa.ArrowException, OSError) as error:
            raise self._failed(names[0], error) from error

    def rows(self, name: str, columns: Sequence[str]) -> Iterator[RecordBatch]:
        """Yield some columns of one Parquet file, those of text as dictionaries; one it does not have is left out.

        Raises:
            PlaceError: it is missing or damaged, or the server does not give it.
        """
        path = "/".join(part for part in (self._bucket, self._prefix, _checked(name)) if part)
        try:
            with self._filesystem().open_input_file(path) as source:
                yield from _batches(source, columns)
        except (pa.ArrowException, OSError) as error:
            raise self._failed(name, error) from error

    def notes(self, name: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Return what the footer of a Parquet file has under some keys, where it has anything.

        Raises:
            PlaceError: it is missing or damaged, or the server does not give it.
        """
        path = "/".join(part for part in (self._bucket, self._prefix, _checked(name)) if part)
        try:
            with self._filesystem().open_input_file(path) as source:
                return _notes(source, keys)
        except (pa.ArrowException, OSError) as error:
            raise self._failed(name, error) from error

    def _filesystem(self) -> Any:
        fs = importlib.import_module("pyarrow.fs")
        settings = self._settings
        endpoint = urlsplit(settings.endpoint) if settings.endpoint else None
        given = {
            "access_key": settings.key,
            "secret_key": settings.secret,
            "session_token": settings.token,
            "endpoint_override": endpoint.netloc if endpoint else None,
            "scheme": endpoint.scheme if endpoint else None,
        }
        return fs.S3FileSystem(
            region=settings.region,
            connect_timeout=10,
            request_timeout=60,
            **{name: value for name, value in given.items() if value is not None},
        )


def _batches(source: Any, columns: Sequence[str]) -> Iterator[RecordBatch]:
    try:
        file = pq.ParquetFile(source, read_dictionary=list(columns), pre_buffer=True)
    except KeyError:
        # It lacks one of them.
        file = pq.ParquetFile(source, pre_buffer=True)
    there = set(file.schema_arrow.names)
    yield from file.iter_batches(_BATCH_ROWS, columns=[name for name in columns if name in there], use_threads=False)


def _notes(source: Any, keys: Sequence[str]) -> dict[str, bytes]:
    there: Mapping[bytes, bytes] = pq.read_metadata(source).metadata or {}
    return {key: value for key in keys if (value := there.get(key.encode())) is not None}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _seconds(count: int) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)
