"""Promises of the look that no page can check on its own: contrast, one hue, one helper, nothing from elsewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mycroft.app import export_script

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "assets"
SHEETS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ASSETS / "css").glob("*.css"))}
SCRIPTS = sorted([*ASSETS.glob("*.js"), *ASSETS.glob("*.mjs"), *(ASSETS / "modules").rglob("*.mjs")])

# What may be in the hue: the root cause, suspected or sure, and nothing else.
CAUSE_SELECTORS = re.compile(r"cause|suspect|chain-cross")


def tokens(theme: str) -> dict[str, str]:
    sheet = SHEETS["1_tokens.css"]
    block = sheet.split(':root[data-theme="dark"] {')[1] if theme == "dark" else sheet.split(":root {")[1]
    return dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6});", block.split("}")[0]))


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_are_readable_on_every_ground(theme: str) -> None:
    known = tokens(theme)
    texts = ("--text", "--muted", "--link", "--cause-text", "--wait-text", "--done-text", "--nolog")
    grounds = ("--page", "--panel", "--raised")
    poor = {
        (text, ground): round(contrast(known[text], known[ground]), 2)
        for text in texts
        for ground in grounds
        if contrast(known[text], known[ground]) < 4.5
    }
    assert poor == {}
    assert contrast(known["--cause-ink"], known["--cause-fill"]) >= 4.5
    assert contrast(known["--nolog"], known["--nolog-soft"]) >= 4.5
    assert contrast(known["--main-text"], known["--main"]) >= 4.5
    for group in ("--group-a", "--group-b", "--group-c", "--group-d"):
        assert contrast(known["--group-ink"], known[group]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shapes_are_visible_on_their_panel(theme: str) -> None:
    known = tokens(theme)
    for name in ("--cause-fill", "--wait-stroke", "--nolog", "--focus", "--done-fill"):
        assert contrast(known[name], known["--panel"]) >= 3, name


def test_both_themes_name_the_same_colours() -> None:
    assert set(tokens("light")) == set(tokens("dark"))


def test_the_hue_means_root_cause_and_nothing_else() -> None:
    wrong = [
        f"{name}: {selector.strip()}"
        for name, sheet in SHEETS.items()
        if name != "1_tokens.css"
        for selector, body in re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", sheet, flags=re.S))
        if "--cause-" in body and not CAUSE_SELECTORS.search(selector)
    ]
    assert wrong == []


def test_colours_stand_in_the_tokens_alone() -> None:
    wrong = [
        f"{name}: {found}"
        for name, sheet in SHEETS.items()
        if name != "1_tokens.css"
        for found in re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s)])", sheet)
    ]
    assert wrong == []


def test_assets_ask_nobody_else_for_anything() -> None:
    for path in [*SCRIPTS, *(ASSETS / "css").glob("*.css")]:
        addresses = re.findall(
            r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"(?m)^\s*//.*$", "", path.read_text(encoding="utf-8"))
        )
        assert [a for a in addresses if "www.w3.org" not in a] == [], path.name


def test_fonts_come_with_their_licences() -> None:
    for font in (ASSETS / "fonts").glob("*.woff2"):
        assert "SIL Open Font License" in font.with_suffix(".LICENSE").read_text(encoding="utf-8")


def test_charts_are_made_by_one_helper_that_sends_nothing_away() -> None:
    from mycroft.app.figures.graph import CONFIG

    assert CONFIG["displaylogo"] is False
    assert CONFIG["showSendToCloud"] is False
    users = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "app").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "Graph"
    ]
    assert set(users) == {"app/figures/graph.py"}


def test_uploads_do_not_go_through_dash() -> None:
    for path in (ROOT / "app").rglob("*.py"):
        assert "dcc.Upload" not in path.read_text(encoding="utf-8"), path


def test_no_module_puts_text_into_a_page_as_markup() -> None:
    for path in SCRIPTS:
        source = path.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in source, f"{path.name} uses {way}"
    for path in (ROOT / "app" / "pages").rglob("*.py"):
        assert "dangerously" not in path.read_text(encoding="utf-8"), path


def test_every_module_is_reached_from_main_or_by_the_exported_file() -> None:
    reached: set[Path] = set()
    modules = ASSETS / "modules"
    todo = [ASSETS / "main.mjs", modules / export_script.ENTRY]
    todo += [modules / name for name in export_script.REPLACED.values()]
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        reached.add(path)
        for name in re.findall(r'from "(\.{1,2}/[^"]+)"', path.read_text(encoding="utf-8")):
            todo.append((path.parent / name).resolve())
    assert set((ASSETS / "modules").rglob("*.mjs")) <= reached
