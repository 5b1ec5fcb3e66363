"""Redaction: what names a site is gone, equal names stay equal, and numbers that only look like addresses stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.app.redaction import Redactor

HOSTS = ["hx-a03", "hx-a03.cluster.example", "hx-a04", "hx-a0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 5 (hx-a03) waits for hx-a04", "rank 5 (host-2) waits for host-3"),
        ("HX-A03.cluster.example: down", "host-2: down"),
        ("hx-a0, hx-a03.", "host-1, host-2."),
        ("prehx-a03 hx-a03x hx-a03-ib0", "prehx-a03 hx-a03x host-2-ib0"),
        (
            "connect 10.1.2.3:29500 failed, 10.1.2.3 again, 10.1.2.4",
            "connect address-1:29500 failed, address-1 again, address-2",
        ),
        ("fe80::1ff:fe23:4567:890a is down", "address-1 is down"),
        ("at 04:11:09 on 0000:3b:00.0 rc 1.2.3 of 2.14.0", "at 04:11:09 on 0000:3b:00.0 rc 1.2.3 of 2.14.0"),
        ("listening on 127.0.0.1 and ::1", "listening on 127.0.0.1 and ::1"),
        ('File "/home/alice/run/train.py", line 88', 'File "/dir-1/train.py", line 88'),
        ("/home/alice/run/a.py and /home/alice/run/b.py", "/dir-1/a.py and /dir-1/b.py"),
        ("mail alice@corp.example", "mail user-1"),
        ("loss 3/4, and/or 12.5 GB/s", "loss 3/4, and/or 12.5 GB/s"),
    ],
)
def test_names_are_replaced_and_the_rest_stays(text: str, expected: str) -> None:
    assert Redactor(HOSTS).text(text) == expected


def test_the_same_name_has_the_same_stand_in_everywhere() -> None:
    redacted = Redactor(HOSTS).tree({"a": ["hx-a03"], "b": {"c": "on hx-a03 at 10.0.0.9"}, "d": ("10.0.0.9", 7, None)})
    assert redacted == {"a": ["host-2"], "b": {"c": "on host-2 at address-1"}, "d": ["address-1", 7, None]}


@given(
    st.lists(st.sampled_from(["hx-a03", "HX-A04", "10.1.2.3", "/srv/secret/x/y.py", " ", ",", "word", ":", "(", ")"]))
)
def test_no_known_name_survives(parts: list[str]) -> None:
    redacted = Redactor(HOSTS).text(" ".join(parts)).lower()
    assert not any(secret in redacted for secret in ("hx-a03", "hx-a04", "10.1.2.3", "secret"))
