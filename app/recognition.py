"""Names the format of a file from its first bytes, while the rest of it is still on its way."""

from __future__ import annotations

import os
from pathlib import Path


def format_of(name: str, size_bytes: int, head: bytes) -> str | None:
    """Return the name of the container or of the loader that recognises the file; None where nobody does.

    An archive is named by its kind (`tar`, `zip`, `gz`, …); what is in it is known when it is unpacked.
    """
    from mycroft.loaders import LOADERS, EvidenceFile
    from mycroft.loaders.streams import container_kind

    kind = container_kind(head)
    if kind is not None:
        return kind
    file = EvidenceFile(0, name, Path(os.devnull), size_bytes, "", head)
    return next((loader.name for loader in LOADERS if head and loader.sniff(file)), None)
