"""Encryption and login of a Kafka-protocol client: from a file and the environment, never from a command line.

The file has lines `name=value` with librdkafka's names, as `security.protocol=SASL_SSL`. Only names that say how to
reach brokers are taken: others would have a client load code, or take back what a sender relies on, such as `acks`.
Secrets may lie in the environment instead: `MYCROFT_KAFKA_PASSWORD` and `MYCROFT_KAFKA_KEY_PASSWORD`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mycroft.tracer.agent.kafka import KafkaAddressError

NAMES: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "client.id",
        "socket.timeout.ms",
    }
)
SECRETS: Final = {"sasl.password": "MYCROFT_KAFKA_PASSWORD", "ssl.key.password": "MYCROFT_KAFKA_KEY_PASSWORD"}
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_MOST_BYTES: Final = 64 << 10


def read_settings(path: str | Path | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of a file, with secrets of the environment over those in it. None: no file.

    Raises:
        KafkaAddressError: the file cannot be read or has a secret that others may read, a line is none, a name is not
            taken, or the settings do not fit each other.
    """
    found = {} if path is None else _of_file(Path(path))
    for name, variable in SECRETS.items():
        if environ.get(variable):
            found[name] = environ[variable]
    if found:
        _check(found, "the environment" if path is None else str(path))
    return found


def _of_file(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as source:
            mode = os.fstat(source.fileno()).st_mode
            data = source.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise KafkaAddressError(f"{path}: the settings of Kafka cannot be read ({error})") from error
    if len(data) > _MOST_BYTES:
        raise KafkaAddressError(f"{path}: larger than {_MOST_BYTES} bytes; expected lines as security.protocol=SSL")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = (part.strip() for part in line.partition("="))
        # The line itself is not shown: it may be a secret.
        if not separator or not value:
            raise KafkaAddressError(f"{path}: line {number}: expected name=value, as security.protocol=SASL_SSL")
        if name not in NAMES:
            raise KafkaAddressError(
                f"{path}: line {number}: {name[:60]!r} is not taken; expected one of {', '.join(sorted(NAMES))}"
            )
        found[name] = value
    if mode & (stat.S_IRGRP | stat.S_IROTH) and found.keys() & SECRETS.keys():
        raise KafkaAddressError(f"{path}: holds a password that others may read; chmod 600 it, or use the environment")
    return found


def _check(settings: Mapping[str, str], origin: str) -> None:
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise KafkaAddressError(
            f"{origin}: security.protocol {protocol[:40]!r}; expected one of {', '.join(PROTOCOLS).upper()}"
        )
    sasl = [name for name in settings if name.startswith("sasl.")]
    if sasl and not protocol.startswith("sasl"):
        raise KafkaAddressError(f"{origin}: {sasl[0]} without security.protocol=SASL_SSL would not be used")
    tls = [name for name in settings if name.startswith("ssl.")]
    if tls and not protocol.endswith("ssl"):
        raise KafkaAddressError(f"{origin}: {tls[0]} without security.protocol=SSL or SASL_SSL would not be used")
    mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "")).upper()
    if protocol.startswith("sasl") and not mechanism:
        raise KafkaAddressError(f"{origin}: SASL needs sasl.mechanisms, as SCRAM-SHA-512")
    if mechanism.startswith(("PLAIN", "SCRAM")):
        for name in ("sasl.username", "sasl.password"):
            if name not in settings:
                hint = f", or ${SECRETS[name]}" if name in SECRETS else ""
                raise KafkaAddressError(f"{origin}: {mechanism} needs {name}{hint}")
    for name in _FILES:
        if name in settings and not os.access(settings[name], os.R_OK):
            raise KafkaAddressError(f"{origin}: {name}: {settings[name]} cannot be read")
