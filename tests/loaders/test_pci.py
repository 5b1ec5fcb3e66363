"""One spelling for PCI addresses."""

from __future__ import annotations

import pytest

from mycroft.loaders.pci import pci_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("97000", "0000:97:00.0"),
        ("1b000", "0000:1b:00.0"),
        ("1901000", "0019:01:00.0"),
        ("00000000:D1:00.0", "0000:d1:00.0"),
        ("0000:97:00", "0000:97:00.0"),
        ("PCI:0000:97:00", "0000:97:00.0"),
        ("2e:00.0", "0000:2e:00.0"),
        ("[0x17]", "0000:17:00.0"),
        ("[0000:1b:00]", "0000:1b:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
    ],
)
def test_every_spelling_gives_the_same_address(text: str, address: str):
    assert pci_address(text) == address


@pytest.mark.parametrize("text", [None, "", "GPU 3", "zz:00.0", "mlx5_3", "0000:97:ff.0", "12", "-1"])
def test_what_is_no_address_is_none(text: str | None):
    assert pci_address(text) is None
