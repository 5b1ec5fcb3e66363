"""Names of hosts as they stand in names of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def hosts_of_files(files: Mapping[int, str], hosts: Sequence[str]) -> dict[int, int]:
    """Return the host whose name stands in the name of a file, as a word of its own; the longest one wins."""
    by_name = {name.lower(): host_id for host_id, name in enumerate(hosts) if len(name) > 1}
    if not by_name:
        return {}
    longest_first = sorted(by_name, key=lambda name: (-len(name), name))
    # A name is a word of its own: at either end something that no host name would go on with.
    words = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![a-z0-9])")
    found: dict[int, int] = {}
    for file_id, path in files.items():
        low = path.lower()
        for text in (re.split(r"[/!]", low)[-1], low):
            names = set(words.findall(text))
            most = max((len(name) for name in names), default=0)
            longest = [name for name in names if len(name) == most]
            if len(longest) == 1:
                found[file_id] = by_name[longest[0]]
                break
    return found
