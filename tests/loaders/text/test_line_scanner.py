"""The scanner: lines, containers, escape sequences, candidates, blocks; the same for every way of cutting the input."""

from __future__ import annotations

import json

import pytest

from mycroft.loaders import _core

PLAN = _core.LinePlan([(["needle"], 0, False), (["opener"], 2, False), (["bulky"], 0, True)])


def scan(data: bytes, *, step: int = 1 << 20, **options):
    scanner = _core.LineScanner(PLAN, **options)
    candidates, bulk, blocks = [], [], []
    for start in range(0, len(data), step):
        for out, part in zip((candidates, bulk, blocks), scanner.feed(data[start : start + step]), strict=True):
            out += part
    for out, part in zip((candidates, bulk, blocks), scanner.finish(), strict=True):
        out += part
    return candidates, bulk, blocks, scanner.counts()


def texts(data: bytes, **options) -> list[tuple[int, str]]:
    return [(line, text) for line, _, _, text, _, _ in scan(data, **options)[0]]


def docker(text: str, stream: str = "stderr") -> bytes:
    return json.dumps({"log": text, "stream": stream, "time": "2026-01-01T00:00:00Z"}).encode() + b"\n"


def test_only_lines_with_a_literal_come_out() -> None:
    assert texts(b"one\ntwo needle\nthree\n") == [(2, "two needle")]


def test_lines_after_an_opener_come_out_whatever_they_hold() -> None:
    assert texts(b"a\nopener\nb\nc\nd\n") == [(2, "opener"), (3, "b"), (4, "c")]


def test_offsets_are_those_of_the_physical_lines() -> None:
    candidates = scan(b"ab\r\nneedle\n\nneedle 2\n")[0]
    assert [offset for _, offset, *_ in candidates] == [4, 12]


def test_line_ends_of_windows_leave_no_trace() -> None:
    assert texts(b"a needle\r\nneedle b\r\n") == [(1, "a needle"), (2, "needle b")]


def test_a_lone_carriage_return_splits_a_line_that_keeps_its_number() -> None:
    assert texts(b" 1%|\r 2%|\rneedle\nneedle\n") == [(1, "needle"), (2, "needle")]


def test_a_last_line_without_an_end_is_read() -> None:
    assert texts(b"x\nneedle at the e") == [(2, "needle at the e")]


def test_escape_sequences_and_nul_bytes_do_not_hide_a_literal() -> None:
    assert texts(b"\x1b[1;31mnee\x1b[0mdle\x1b]0;title\x07!\nnee\0\0dle\n") == [(1, "needle!"), (2, "needle")]


def test_docker_records_are_undone_with_their_escapes() -> None:
    data = docker('needle "é\\ü" <b> \t.\n') + b'{"log":"needle \\u003cx\\u003e \\ud83d\\ude00\\n","stream":"stdout"}\n'
    assert texts(data) == [(1, 'needle "é\\ü" <b> \t.'), (2, "needle <x> \U0001f600")]


def test_docker_lines_split_at_16_kib_are_joined_per_stream() -> None:
    long = "x" * 16_384
    data = docker(long) + docker("other\n", "stdout") + docker("needle\n")
    assert texts(data) == [(1, long + "needle")]


def test_records_without_a_newline_are_whole_lines_when_short() -> None:
    assert texts(docker("needle one") + docker("needle two")) == [(1, "needle one"), (2, "needle two")]


def test_cri_parts_are_joined() -> None:
    data = (
        b"2026-01-01T00:00:00.1Z stderr P nee\n"
        b"2026-01-01T00:00:00.1Z stdout F else\n"
        b"2026-01-01T00:00:00.2Z stderr F dle\n"
    )
    assert texts(data) == [(1, "needle")]


def test_a_record_inside_cri_is_undone_too() -> None:
    assert texts(b"2026-01-01T00:00:00.1Z stdout F " + docker("a needle\n")) == [(1, "a needle")]


def test_what_containers_say_comes_beside_the_text() -> None:
    (candidate,) = scan(docker("needle\n"))[0]
    assert json.loads(candidate[5]) == {"log": "", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}


def test_an_object_without_text_is_a_line_like_any_other() -> None:
    line = b'{"message": 3, "needle": "log"}'
    assert texts(line + b"\n") == [(1, line.decode())]
    record = b'{"msg": "needle without a time beside it"}'
    assert texts(record + b"\n") == [(1, record.decode())]


def test_a_record_cut_short_gives_what_there_is() -> None:
    assert texts(b'{"log":"needle and mo') == [(1, "needle and mo")]


def test_a_line_longer_than_the_limit_is_cut_and_counted() -> None:
    data = b"needle" + b"x" * 5000 + b"needle\nneedle\n"
    for step in (7, 64, 1 << 20):
        candidates, _, _, counts = scan(data, max_line=100, step=step)
        assert [(line, flags & 2) for line, _, flags, *_ in candidates] == [(1, 2), (2, 0)]
        assert len(candidates[0][3]) == 100
        assert (counts["cut"], counts["lines"]) == (1, 2)


def test_a_hundred_megabytes_without_an_end_need_no_memory() -> None:
    scanner = _core.LineScanner(PLAN, max_line=1 << 16)
    chunk = b"y" * (1 << 20)
    for _ in range(100):
        assert scanner.feed(chunk)[0] == []
    candidates, _, _ = scanner.feed(b"\nneedle\n")
    assert [(c[0], c[3]) for c in candidates] == [(2, "needle")]
    assert scanner.counts()["cut"] == 1


def test_a_progress_bar_longer_than_the_limit_keeps_its_pieces() -> None:
    data = b"\r".join(b" %d%%|" % i for i in range(1000)) + b"\rneedle\nafter needle\n"
    assert texts(data, max_line=64, step=50) == [(1, "needle"), (2, "after needle")]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    (candidate,) = scan(b"needle \xff\xfe \xc3\n")[0]
    assert candidate[3].startswith("needle �")
    ((_, rows, _, _, text, _, _),) = scan(b"bulky \xff\xf0\x9f\x98\x80\xed\xa0\x80\n")[1]
    assert rows == 1
    assert text.decode() == "bulky �\U0001f600���"


def test_lines_of_bulk_matchers_come_as_columns() -> None:
    candidates, bulk, _, _ = scan(b"bulky 1\nx\nbulky 2\n")
    ((matcher, rows, lines, ends, text, _, _),) = bulk
    assert (candidates, matcher, rows, text) == ([], 2, 2, b"bulky 1bulky 2")
    assert list(memoryview(lines).cast("I")) == [1, 3]
    assert list(memoryview(ends).cast("q")) == [0, 7, 14]


def test_blocks_hold_the_whole_text() -> None:
    lines = [b"line %d" % i for i in range(5000)]
    blocks = scan(b"\r\n".join(lines) + b"\r\n", block_bytes=1000, step=777)[2]
    assert [first for first, _, _ in blocks] == [1 + sum(n for _, n, _ in blocks[:i]) for i in range(len(blocks))]
    assert b"\n".join(content for _, _, content in blocks).split(b"\n") == lines
    assert max(len(content) for _, _, content in blocks) <= 1000


MIXED = b"".join(
    (
        b"plain needle\r\n\n",
        docker("opener\x1b[0m\n"),
        b"follow \xff\r\r\nbulky\rneedle\n",
        b"2026-01-01T00:00:00.1Z stderr P nee\n2026-01-01T00:00:00.2Z stderr F dle\n",
        b"\0\0needle\0\n" + "ünïcode needle ".encode() * 3 + b"\n",
        b"needle without an end",
    )
)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 16, 61, 1000])
def test_the_result_does_not_depend_on_how_the_input_is_cut(step: int) -> None:
    whole = scan(MIXED)
    cut = scan(MIXED, step=step)
    assert cut[0] == whole[0]
    assert cut[2:] == whole[2:]
    assert [b"".join(bulk[4] for bulk in part) for part in (cut[1], whole[1])] == [b"bulky", b"bulky"]


def test_a_literal_may_lie_in_another() -> None:
    plan = _core.LinePlan([(["abcdef", "bcde"], 0, False), (["cdef"], 0, False), (["xabcdefx"], 0, False)])
    scanner = _core.LineScanner(plan)
    candidates, _, _ = scanner.feed(b"xabcdefx\nbcde\ncdef\nabcd\n")
    assert [ids for *_, ids, _ in candidates] == [(0, 1, 2), (0,), (1,)]


def test_literals_are_found_wherever_they_stand() -> None:
    plan = _core.LinePlan([(["needle"], 0, False), (["dle!"], 0, False)])
    for before in range(12):
        for after in range(4):
            scanner = _core.LineScanner(plan)
            line = b"x" * before + b"needle!" + b"y" * after
            ((_, _, _, text, ids, _),), _, _ = scanner.feed(line + b"\n")
            assert (text.encode(), ids) == (line, (0, 1))


@pytest.mark.parametrize("literal", ["", "abc"])
def test_a_literal_too_short_to_look_for_is_refused(literal: str) -> None:
    with pytest.raises(ValueError, match="four bytes"):
        _core.LinePlan([([literal], 0, False)])
