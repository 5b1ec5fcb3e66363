"""The arrows between the folders, and promises about the tree that nothing else checks."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "analysis", "loaders", "tracer")

# What a module may import of ours, by the folder it lies in: prefixes of `mycroft.…`.
ALLOWED = {
    "tracer": ("mycroft.tracer", "mycroft.errors"),
    "loaders": ("mycroft.loaders", "mycroft.tracer", "mycroft.errors", "mycroft.scratch"),
    "analysis": ("mycroft.analysis", "mycroft.loaders.store", "mycroft.loaders.schema", "mycroft.errors"),
    "app": ("mycroft",),
}


def modules(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names] if module == "mycroft" else [module]
    return names


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_follow_the_arrows(folder: str) -> None:
    allowed = ALLOWED[folder]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(folder)
        for name in imported(path)
        if name.split(".")[0] == "mycroft"
        and not any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)
    ]
    assert wrong == []


def test_only_the_store_knows_duckdb() -> None:
    users = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in modules(folder)
        if any(name.split(".")[0] == "duckdb" for name in imported(path))
    ]
    assert users == ["loaders/store.py"]


def test_nothing_unpickles_or_evaluates() -> None:
    forbidden = {"pickle", "cPickle", "dill", "marshal", "shelve", "yaml"}
    wrong: list[str] = []
    for folder in FOLDERS:
        for path in modules(folder):
            wrong += [f"{path}: imports {n}" for n in imported(path) if n.split(".")[0] in forbidden]
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
                    wrong.append(f"{path}:{node.lineno}: {node.func.id}")
    assert wrong == []


def test_package_links_point_at_the_folders() -> None:
    for name in (*FOLDERS, "assets"):
        link = ROOT / "src" / "mycroft" / name
        assert link.is_symlink()
        assert link.readlink() == Path("../..") / name


def test_schema_page_is_up_to_date() -> None:
    from mycroft.loaders.schema import markdown

    assert (ROOT / "docs" / "schema.md").read_text() == markdown() + "\n", "run `make docs`"


def test_readme_names_every_command() -> None:
    from mycroft.app.commands import COMMANDS

    readme = (ROOT / "README.md").read_text()
    missing = [command.name for command in COMMANDS if f"mycroft {command.name}" not in readme]
    assert missing == []


def test_every_environment_variable_is_documented() -> None:
    sources = "".join(
        path.read_text()
        for folder in FOLDERS
        for pattern in ("*.py", "*.h", "*.cpp")
        for path in (ROOT / folder).rglob(pattern)
    )
    docs = (ROOT / "README.md").read_text() + "".join(p.read_text() for p in (ROOT / "docs").glob("*.md"))
    used = set(re.findall(r"[\"'](MYCROFT_[A-Z0-9_]+)[\"']", sources))
    assert sorted(used - set(re.findall(r"MYCROFT_[A-Z0-9_]+", docs))) == []


def test_local_links_in_the_documents_lead_somewhere() -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    broken = [
        f"{name}: {target}"
        for name in tracked.stdout.split()
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / name).read_text())
        if "://" not in target and not ((ROOT / name).parent / target).exists()
    ]
    assert broken == []
