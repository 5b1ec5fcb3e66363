"""The pure JavaScript modules, run in Chromium, against the vectors that they share with Python."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from mycroft.app import uploads, urls, words
from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser
VECTORS = json.loads((Path(__file__).parents[1] / "data" / "url_vectors.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(site: Site, page: Page) -> Any:
    """Return a function that calls an export of a module with arguments."""
    page.goto(site.url + "/")
    ready(page, "traces")

    def call(module: str, body: str, argument: Any = None) -> Any:
        source = f"async (argument) => {{ const m = await import('/assets/modules/{module}.mjs'); {body} }}"
        return page.evaluate(source, argument)

    return call


def test_addresses_are_read_and_written_as_in_python(run: Any) -> None:
    body = """return argument.map((address) => {
      const parsed = m.parse(address);
      return { ...parsed, problems: parsed.problems.length, built: parsed.page === null ? null : m.build(parsed) };
    });"""
    vectors = VECTORS["parse"]
    for vector, found in zip(vectors, run("urls", body, [v["address"] for v in vectors]), strict=True):
        expected = {
            "page": vector["page"],
            "params": vector["params"],
            "view": vector["view"],
            "extra": vector["extra"],
            "problems": vector.get("problems", 0),
            "built": None if vector["page"] is None else vector.get("canonical", vector["address"]),
        }
        assert found == expected, vector["address"]


def test_addresses_are_clamped_as_in_python(run: Any) -> None:
    body = """return argument.map(({ address, extents }) => {
      const found = m.clamp(m.parse(address), extents);
      return { view: found.view, problems: found.problems.length };
    });"""
    for vector, found in zip(VECTORS["clamp"], run("urls", body, VECTORS["clamp"]), strict=True):
        assert found == {"view": vector["view"], "problems": vector["problems"]}, vector["address"]


def test_text_of_any_kind_survives_an_address_in_both_languages(run: Any) -> None:
    names = ["a/b", "100%", "höst", "日本", "a b+c", "%zz", "\U0001f600", "?#&=", "..", "ho\u202est"]
    addresses = [urls.path_of("host", trace="t", host=name) for name in names]
    assert run("urls", "return argument.map((a) => m.parse(a).params.host);", addresses) == names
    body = "return argument.map((host) => m.build({page: 'host', params: {trace: 't', host}, view: {}, extra: []}));"
    assert run("urls", body, names) == addresses


def test_missing_chunks_are_those_that_the_server_lacks(run: Any) -> None:
    body = "return m.missingChunks(argument.files, argument.received, 10);"
    files = [{"size": 25}, {"size": 0}, {"size": 10}, {"size": 31}]
    received = [{"file": 0, "received": [[0, 1], [2, 3]]}, {"file": 3, "received": [[0, 4]]}]
    assert run("upload_plan", body, {"files": files, "received": received}) == [
        {"file": 0, "chunk": 1, "start": 10, "end": 20},
        {"file": 2, "chunk": 0, "start": 0, "end": 10},
    ]


def test_both_sides_count_chunks_alike(run: Any) -> None:
    sizes = [0, 1, 9, 10, 11, 8 * 2**20, 8 * 2**20 + 1, 2**40]
    for chunk in (10, 8 * 2**20):
        found = run("upload_plan", f"return argument.map((size) => m.chunkCount(size, {chunk}));", sizes)
        assert found == [uploads.chunk_count(size, chunk) for size in sizes]


def test_a_checksum_is_the_one_that_python_computes(run: Any) -> None:
    for data in (b"", b"123456789", bytes(range(256)) * 5):
        found = run("upload_plan", "return m.crc32(new Uint8Array(argument));", list(data))
        assert found == f"{zlib.crc32(data):08x}"


def test_the_same_files_have_the_same_fingerprint_in_any_order(run: Any) -> None:
    a, b = {"path": "x/a", "size": 1, "mtime": 5}, {"path": "x/b", "size": 2, "mtime": 6}
    body = "return argument.map((files) => m.fingerprint(files));"
    first, second, other, bigger = run("upload_plan", body, [[a, b], [b, a], [a], [a, {**b, "size": 3}]])
    assert first == second
    assert len({first, other, bigger}) == 3


def test_refusals_are_not_retried_and_pauses_grow_within_bounds(run: Any) -> None:
    retried = run(
        "upload_plan",
        "return argument.filter((s) => m.isWorthRetrying(s));",
        [0, 400, 403, 404, 409, 413, 429, 500, 503, 507],
    )
    assert retried == [0, 429, 500, 503, 507]
    lows = run("upload_plan", "return argument.map((n) => m.backoff(n, () => 0));", [1, 2, 3, 20])
    highs = run("upload_plan", "return argument.map((n) => m.backoff(n, () => 1));", [1, 2, 3, 20])
    assert lows == [250, 500, 1000, 15000]
    assert highs == [500, 1000, 2000, 30000]


def test_sizes_are_written_as_python_writes_them(run: Any) -> None:
    sizes = [0, 1, 1023, 1024, 1536, 5 * 2**20, 3 * 2**30 + 1, 2**42]
    assert run("upload_plan", "return argument.map(m.sizeText);", sizes) == [words.size(size) for size in sizes]


def test_a_rate_is_that_of_the_last_seconds(run: Any) -> None:
    body = """const meter = new m.RateMeter();
    const before = meter.rate();
    for (let s = 0; s <= 30; s += 1) meter.add(s < 20 ? s * 10 : 200 + (s - 20) * 1000, s * 1000);
    return [before, meter.rate()];"""
    before, rate = run("upload_plan", body)
    assert before is None
    assert rate == pytest.approx(1000, rel=0.05)


def test_pictures_with_anything_but_shapes_are_refused(run: Any) -> None:
    body = "return argument.map((source) => m.parsePicture(source) !== null);"
    open_, close = '<svg xmlns="http://www.w3.org/2000/svg">', "</svg>"
    bad = [
        "<script>1</script>",
        '<a href="javascript:1"/>',
        '<a href="//elsewhere/x"/>',
        '<rect style="fill:red"/>',
        '<rect fill="url(http://elsewhere/x)"/>',
        "<foreignObject/>",
        '<image href="/x.png"/>',
        '<html xmlns="http://www.w3.org/1999/xhtml"/>',
        "<not closed",
    ]
    good = [
        '<a href="/t/x"><rect/></a>',
        '<a href="#stack-A"/>',
        '<rect fill="url(#hatch)"/>',
        "<text>&lt;b&gt;</text>",
    ]
    handlers = [["onclick", "1"], ["onload", "1"], ["style", "x"], ["href", "javascript:1"], ["href", "/t/x"]]
    harmless = run("figures", "return argument.map(([name, value]) => m.isHarmless(name, value));", handlers)
    assert harmless == [False, False, False, False, True]
    assert run("figures", body, [open_ + part + close for part in bad]) == [False] * len(bad)
    assert run("figures", body, [open_ + part + close for part in good]) == [True] * len(good)


def test_an_edge_stands_where_the_rules_of_the_analysis_say(run: Any) -> None:
    """The order of the rules: unknown, done, moving, credit, network, proxy, upstream."""
    both = {"sendLog": True, "recvLog": True, "standingMs": 2000}

    def half(posted: int, ready_: int, moved: int, done: int, idle: int = 9000, total: int = 16) -> dict[str, Any]:
        return {
            "posted": posted,
            "ready": ready_,
            "moved": moved,
            "done": done,
            "total": total,
            "idle_ms": idle,
            "silent": False,
        }

    full = half(16, 16, 16, 16)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (full, full, both, "done"),
        (half(9, 8, 8, 7, 100), half(12, 7, 7, 7), both, "moving"),
        (half(12, 10, 10, 8), half(12, 8, 8, 8), both, "stopped"),
        (half(12, 10, 10, 8), half(8, 8, 8, 8), both, "downstream"),
        (half(12, 10, 8, 8), half(12, 8, 8, 8), both, "stopped"),
        (half(12, 10, 8, 8), half(8, 8, 8, 6), both, "downstream"),
        (half(12, 8, 8, 8), half(12, 8, 8, 8), both, "upstream"),
        (half(12, 10, 10, 8), None, both, "downstream"),
        (half(12, 10, 10, 8), None, {**both, "recvLog": False}, "nolog"),
        (None, half(8, 0, 0, 0), both, "upstream"),
        (None, half(8, 0, 0, 0), {**both, "sendLog": False}, "nolog"),
        (None, None, {**both, "sendLog": False}, "nolog"),
        (None, None, both, "upstream"),
        (full, half(16, 16, 15, 15), both, "stopped"),
        ({**half(12, 10, 10, 8), "silent": True}, half(12, 8, 8, 8), both, "nolog"),
    ]
    body = "return argument.map(([send, recv, known]) => m.edgeState(send, recv, known));"
    found = run("flow/states", body, [list(case[:3]) for case in cases])
    assert found == [case[3] for case in cases]


def test_pixels_show_the_worst_of_the_ranks_that_fall_into_them(run: Any) -> None:
    values = [0.0, 0.5, None, 0.1, None, None, 0.9, 0.2]
    assert run("flow/states", "return m.reduced(argument, 4);", values) == [0.5, 0.1, None, 0.9]
    assert run("flow/states", "return m.reduced(argument, 20);", values) == values


def test_a_step_holds_until_the_next(run: Any) -> None:
    half = [0, 0, 1, 1, None, 8, None, [[2, 1, 1, 1, 1, 0], [5, 3, 3, 3, 3, 0]]]
    body = "return [0, 1, 2, 4, 5, 90].map((tick) => m.stepAt(argument, tick)?.[1] ?? null);"
    assert run("flow/states", body, half) == [None, None, 1, 1, 3, 3]


def test_a_window_stays_inside_of_the_trace_and_as_long_as_it_fits(run: Any) -> None:
    cases = [
        ({"t0": -50, "t1": 50, "y0": 0, "y1": 4}, {"t0": 0, "t1": 100, "y0": 0, "y1": 4}),
        ({"t0": 950, "t1": 1050, "y0": 6, "y1": 12}, {"t0": 900, "t1": 1000, "y0": 2, "y1": 8}),
        ({"t0": 10, "t1": 11, "y0": 3, "y1": 3}, {"t0": 10, "t1": 30, "y0": 3, "y1": 5}),
        ({"t0": -9, "t1": 5000, "y0": -9, "y1": 99}, {"t0": 0, "t1": 1000, "y0": 0, "y1": 8}),
    ]
    body = "return argument.map((view) => m.clamped(view, 1000, 8));"
    assert run("timeline/view", body, [case for case, _ in cases]) == [wanted for _, wanted in cases]


def test_the_level_is_the_coarsest_whose_bins_are_not_much_longer_than_a_pixel(run: Any) -> None:
    levels = [{"bin_us": 4096}, {"bin_us": 1024}, {"bin_us": 256}, {"bin_us": 64}]
    body = "return argument.pixels.map((pixel) => m.levelFor(argument.levels, pixel));"
    assert run("timeline/view", body, {"levels": levels, "pixels": [9000, 2731, 2700, 300, 100, 1]}) == [
        0,
        0,
        1,
        2,
        3,
        3,
    ]


def test_bars_and_heat_do_not_flicker_between_two_counts(run: Any) -> None:
    body = "return argument.map(([before, total, px]) => m.modeFor(before, total, px, 12000));"
    cases = [
        ("heat", 9500, 20),
        ("bars", 9500, 20),
        ("heat", 8999, 20),
        ("bars", 12001, 20),
        ("bars", 5, 3.9),
        ("bars", None, 20),
    ]
    assert run("timeline/view", body, cases) == ["heat", "bars", "bars", "heat", "heat", "heat"]


def test_every_pixel_shows_the_worst_cell_that_falls_into_it(run: Any) -> None:
    body = """
    const { codes } = await import('/assets/modules/timeline/painter.mjs');
    const { Tiles } = await import('/assets/modules/timeline/tiles.mjs');
    const tiles = new Tiles('', () => {}, () => {});
    const cells = new Uint8Array(65536);
    for (const [row, bin, code] of argument.cells) cells[row * 256 + bin] = code;
    tiles.keep('late/0/0/0', cells);
    const levels = [{ bin_us: 1, bins: 256 }, { bin_us: 0.25, bins: 1024 }];
    const found = codes({ ...argument, levels, tiles, metric: 'late' });
    return [...found.made];"""
    cells = [[0, 3, 9], [1, 200, 7], [2, 255, 4]]
    whole = {"t0": 0, "t1": 256, "y0": 0, "y1": 4}
    ask = {"cells": cells, "view": whole, "level": 0, "order": [0, 1, 2, 3], "width": 4, "height": 2}
    assert run("timeline/view", body, ask) == [9, 0, 0, 7, 0, 0, 0, 4]
    turned = {**ask, "order": [3, 2, 1, 0]}
    assert run("timeline/view", body, turned) == [0, 0, 0, 4, 9, 0, 0, 7]
    # The finer level has no tile here: the coarser one is stretched in its place.
    near = {**ask, "level": 1, "view": {"t0": 2, "t1": 5, "y0": 0, "y1": 1}, "width": 3, "height": 1}
    assert run("timeline/view", body, near) == [0, 9, 0]


def test_a_picture_that_keeps_its_lines_is_the_one_that_a_plain_loop_finds(run: Any) -> None:
    """Rows of several bands in any order, moved along time, with tiles that come while it is looked at."""
    body = """
    const { codes } = await import('/assets/modules/timeline/painter.mjs');
    const { Tiles } = await import('/assets/modules/timeline/tiles.mjs');
    const tiles = new Tiles('', () => {}, () => {});
    let state = 7;
    const chance = (below) => { state = (state * 48271) % 2147483647; return state % below; };
    const tile = () => Uint8Array.from({ length: 65536 }, () => (chance(40) ? 0 : chance(256)));
    const order = Array.from({ length: 600 }, (_, at) => at).sort(() => chance(3) - 1);
    const levels = [{ bin_us: 4, bins: 250 }, { bin_us: 1, bins: 1000 }];
    for (const band of [0, 1, 2]) tiles.keep(`late/0/${band}/0`, tile());
    const cell = (row, bin) => {
      const [band, line] = [order[row] >> 8, order[row] & 255];
      const fine = tiles.get('late', 1, band, bin >> 8);
      return fine ? fine[line * 256 + (bin & 255)] : tiles.get('late', 0, band, 0)[line * 256 + (bin >> 2)];
    };
    const [width, height] = [60, 40];
    let lines = null;
    let wrong = 0;
    for (const [t0, y0] of [[0, 0], [100, 0], [400, 0], [400, 200], [500, 200]]) {
      const view = { t0, t1: t0 + 480, y0, y1: y0 + 390 };
      const found = codes({ view, level: 1, levels, tiles, metric: 'late', order, width, height, lines });
      lines = found.lines;
      for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
        let worst = 0;
        for (let row = Math.floor(y0 + y * 390 / height); row < Math.ceil(y0 + (y + 1) * 390 / height); row += 1)
          for (let bin = t0 + x * 8; bin < Math.min(t0 + x * 8 + 8, 1000); bin += 1)
            worst = Math.max(worst, cell(row, bin));
        if (worst !== found.made[y * width + x]) wrong += 1;
      }
      tiles.keep(`late/1/${chance(3)}/${chance(4)}`, tile());
    }
    return wrong;"""
    assert run("timeline/view", body) == 0


def test_a_screen_reader_is_told_one_thing_in_five_seconds_and_the_last_is_not_lost(run: Any, page: Page) -> None:
    # The clock stands still but for what the test adds, however slow the machine is.
    page.clock.install(time=0)
    page.clock.pause_at(3600)
    body = "for (const text of argument) m.announce(text); return document.getElementById('live-region').textContent;"
    assert run("copying", body, ["first", "second", "third"]) == "first"
    page.clock.fast_forward(4_900)
    assert page.locator("#live-region").text_content() == "first"
    page.clock.fast_forward(200)
    assert page.locator("#live-region").text_content() == "third"


def test_the_scale_is_of_the_view_and_one_stall_does_not_flatten_it(run: Any) -> None:
    histogram = [0] * 256
    histogram[1], histogram[40], histogram[60], histogram[200] = 10, 5000, 4900, 1
    assert run("timeline/view", "return m.scaleOf(argument, 'late', 254);", histogram) == [40, 60, 200]
    shares = run("timeline/view", "return [40, 60, 200].map((code) => m.shareOf(code, argument));", [40, 60, 200])
    assert shares == [0, 0.5, 1]
    assert run("timeline/view", "return m.scaleOf(argument, 'late', 254);", [0] * 256) == [1, 254, 254]
