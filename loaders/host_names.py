"""Names of hosts as they stand in names of files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_WORD: Final = re.compile(r"[a-z0-9]+")


def hosts_of_files(files: Mapping[int, str], hosts: Sequence[str]) -> dict[int, int]:
    """Return the host whose name stands in the name of a file, as a word of its own; the longest one wins."""
    by_name = {name.lower(): host_id for host_id, name in enumerate(hosts) if len(name) > 1}
    most_words = max((len(_WORD.findall(name)) for name in by_name), default=0)
    found: dict[int, int] = {}
    for file_id, path in files.items() if by_name else ():
        low = path.lower()
        for text in (re.split(r"[/!]", low)[-1], low):
            names = {name for name in _runs(text, most_words) if name in by_name}
            most = max((len(name) for name in names), default=0)
            longest = [name for name in names if len(name) == most]
            if len(longest) == 1:
                found[file_id] = by_name[longest[0]]
                break
    return found


def _runs(text: str, most_words: int) -> Iterator[str]:
    """Give every run of up to so many words as it stands in `text`: work does not grow with the number of hosts."""
    words = [match.span() for match in _WORD.finditer(text)]
    for at, (start, _) in enumerate(words):
        for _, end in words[at : at + most_words]:
            yield text[start:end]
