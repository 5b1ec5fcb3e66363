"""The splitter that hands out the elements of a JSON array without building a document."""

from __future__ import annotations

import json
import random

import pytest

from mycroft.loaders._core import JsonElements

DOCUMENT = json.dumps(
    {
        "schemaVersion": 1,
        "name": 'a "quoted" \\ name with [ and {',
        "traceEvents": [
            {"name": "first", "args": {"deep": [[["x"]]], "text": "a } in a string"}},
            17,
            "lone ] string",
            [1, 2, {"nccl": True}],
            {"name": "nccl last"},
        ],
        "after": {"k": [1, 2]},
    }
).encode()


def split(data: bytes, *, needles: list[str] | None = None, size: int | None = None, max_element: int = 1 << 20):
    scanner = JsonElements(["traceEvents"], needles or [], max_element)
    found = []
    step = size or len(data) or 1
    for at in range(0, len(data), step):
        found += scanner.feed(data[at : at + step])
    return found, scanner.finish()


def test_elements_and_members_come_out_whole_and_in_order():
    found, counts = split(DOCUMENT)
    elements = [json.loads(value) for member, _, value, _ in found if not member]
    members = {key: json.loads(value) for member, key, value, _ in found if member}
    assert elements == json.loads(DOCUMENT)["traceEvents"]
    assert members == {k: v for k, v in json.loads(DOCUMENT).items() if k != "traceEvents"}
    assert counts["documents"] == 1
    assert not counts["open"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_result_does_not_depend_on_the_size_of_the_pieces(size: int):
    assert split(DOCUMENT, size=size) == split(DOCUMENT)


def test_offsets_point_at_the_elements():
    found, _ = split(DOCUMENT, size=9)
    assert all(DOCUMENT[offset : offset + len(value)] == value for _, _, value, offset in found)


def test_only_elements_with_a_needle_are_handed_out():
    found, counts = split(DOCUMENT, needles=["nccl"])
    assert len([1 for member, *_ in found if not member]) == 2
    assert (counts["elements"], counts["wanted"]) == (5, 2)


def test_a_top_level_array_gives_its_elements():
    found, counts = split(b'[{"a":1},\n{"b":2},\n', size=4)
    assert [value for _, _, value, _ in found] == [b'{"a":1}', b'{"b":2}']
    assert counts["open"]


def test_documents_may_follow_each_other_and_text_may_stand_between():
    found, counts = split(b'NCCL version 2.28\n{"a": 1}\n$ date\n{"b": {"c": []}}\n')
    assert [(key, value) for _, key, value, _ in found] == [("a", b"1"), ("b", b'{"c": []}')]
    assert counts["documents"] == 2


@pytest.mark.parametrize("size", [5, 1000])
def test_an_element_over_the_limit_is_counted_and_dropped(size: int):
    data = b'{"traceEvents": [{"x": "' + b"y" * 500 + b'"}, {"z": 1}]}'
    found, counts = split(data, size=size, max_element=100)
    assert [value for _, _, value, _ in found] == [b'{"z": 1}']
    assert counts["oversized"] == 1


def test_nesting_of_any_depth_needs_no_stack():
    deep = b'{"traceEvents": [' + b"[" * 1_000_000 + b"]" * 1_000_000 + b', {"z": 1}]}'
    found, _ = split(deep, size=1 << 16, max_element=4 << 20)
    assert len(found) == 2


def test_damaged_input_ends_and_hands_out_only_bytes_of_the_input():
    rng = random.Random(7)
    for _ in range(400):
        data = bytearray(DOCUMENT)
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(len(data))
            choice = rng.random()
            if choice < 0.4:
                data[at] = rng.choice(b'{}[]",:\\ \x00\xff')
            elif choice < 0.7:
                del data[at : at + rng.randrange(1, 20)]
            else:
                data[at:at] = rng.choice([b"{", b"]", b'"', b"}}}}", b"[[["])
        found, counts = split(bytes(data), size=rng.choice([1, 3, 1000]))
        assert all(bytes(data)[offset : offset + len(value)] == value for _, _, value, offset in found)
        assert counts["bytes"] == len(data)
