"""Mounts as nfsiostat shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loaders.text.recorder import read

TEXT = """\
fs1:/export mounted on /ckpt:

           ops/s       rpc bklog
         210.000          41.000

read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)
                   1.000          32.000          32.000        0 (0.0%)           0.900           1.100           0.010
write:             ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)
                 209.000       13376.000          64.000       {again}         812.000        {exe}        9800.010
"""


@pytest.mark.parametrize(
    ("again", "exe", "bad"), [("0 (0.0%)", "12.100", False), ("0 (0.0%)", "9412.100", True), ("90 (9.1%)", "2.1", True)]
)
def test_a_slow_mount(tmp_path: Path, again: str, exe: str, bad: bool) -> None:
    found = read(tmp_path, TEXT.format(again=again, exe=exe))
    (write,) = [r for r in found.rows() if r.get("name") == "nfs_write"]
    assert (write["kind"], write["device"], write["value"]) == (
        "storage_error" if bad else "other",
        "/ckpt",
        float(exe),
    )
    (reading,) = [r for r in found.rows() if r.get("name") == "nfs_read"]
    assert (reading["kind"], reading["value"]) == ("other", 1.1)


def test_older_releases_have_one_column_less(tmp_path: Path) -> None:
    lines = [line[:-16] if "avg queue" in line or "0.010" in line else line for line in TEXT.splitlines()]
    found = read(tmp_path, "\n".join(lines).format(again="0 (0.0%)", exe="9412.100") + "\n")
    assert found.event("storage_error")["value"] == 9412.1
