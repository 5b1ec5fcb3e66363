"""One spelling for PCI addresses: `0000:97:00.0`, the bridge between NCCL, the kernel, nvidia-smi and lspci."""

from __future__ import annotations

import re
from typing import Final

_DOTTED: Final = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$", re.IGNORECASE
)
_COMPACT: Final = re.compile(r"[0-9a-f]{4,12}$", re.IGNORECASE)
_BUS_ONLY: Final = re.compile(r"0x([0-9a-f]{1,2})$", re.IGNORECASE)


def pci_address(text: str | None) -> str | None:
    """Return `domain:bus:device.function` in lower case with a domain of four digits or more; None if it is none.

    Understood are `00000000:D1:00.0`, `PCI:0000:97:00`, `2e:00.0`, NCCL's `97000` and `1901000` (hexadecimal without
    punctuation: domain, bus, device, function) and nccl-tests' `0x17` (the bus alone).
    """
    word = (text or "").strip().strip("[]()").rstrip(",:")
    match = _DOTTED.match(word)
    if match:
        domain, bus, device = int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)
        return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4] or '0'}" if device < 32 else None
    match = _BUS_ONLY.match(word)
    if match:
        return f"0000:{int(match[1], 16):02x}:00.0"
    if _COMPACT.match(word):
        number = int(word, 16)
        domain, bus, device, function = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF
        if domain <= 0xFFFFFFFF and device < 32 and function < 8:
            return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
    return None
