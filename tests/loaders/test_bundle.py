"""Evidence in any container, and containers made in order to harm."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import socket
import stat
import struct
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard

from mycroft.loaders import LoadError
from mycroft.loaders.bundle import Bundle, Limits, NamedFile, unpack

NORMAL = Limits()
FILES = {"run/rank_0/stderr.log": b"one\n", "run/rank_1/stderr.log": b"two\n" * 5000, "job.json": b"{}"}


def tar_of(files: dict[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


COMPRESSORS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}
ARCHIVES = {
    "a.tar": tar_of(FILES),
    "gnu.tar": tar_of(FILES, tarfile.GNU_FORMAT),
    "ustar.tar": tar_of(FILES, tarfile.USTAR_FORMAT),
    "a.zip": zip_of(FILES),
    **{f"a.tar.{ending}": compress(tar_of(FILES)) for ending, compress in COMPRESSORS.items()},
}


@pytest.fixture
def bundle_of(tmp_path: Path):
    """Unpack content under a name, or sources as they are."""

    def run(*sources: object, limits: Limits = NORMAL) -> Bundle:
        folder = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        made: list[str | Path | NamedFile] = []
        for source in sources:
            if isinstance(source, tuple):
                name, content = source
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                source = path
            assert isinstance(source, str | Path | NamedFile)
            made.append(source)
        return unpack(made, folder, limits=limits)

    return run


def contents(bundle: Bundle) -> dict[str, bytes]:
    return {found.name: found.path.read_bytes() for found in bundle.files}


def refusals(bundle: Bundle) -> dict[str, str]:
    return {refused.name: refused.why for refused in bundle.refused}


@pytest.mark.parametrize("name", ARCHIVES.keys())
def test_every_archive_gives_its_files(name: str, bundle_of) -> None:
    bundle = bundle_of((name, ARCHIVES[name]))
    assert contents(bundle) == {f"{name}!{member}": content for member, content in FILES.items()}
    assert bundle.refused == []


@pytest.mark.parametrize("ending", COMPRESSORS.keys())
def test_a_compressed_file_keeps_its_name(ending: str, bundle_of) -> None:
    bundle = bundle_of((f"rank_3.log.{ending}", COMPRESSORS[ending](b"text\n")))
    assert contents(bundle) == {f"rank_3.log.{ending}": b"text\n"}


def test_containers_are_known_by_content_and_not_by_name(bundle_of) -> None:
    bundle = bundle_of(("evidence.log", ARCHIVES["a.tar.gz"]), ("dump.tar.gz", b"just text\n"))
    names = set(contents(bundle))
    assert names == {"dump.tar.gz", *(f"evidence.log!{member}" for member in FILES)}


def test_archives_in_archives_are_opened(bundle_of) -> None:
    inner = gzip.compress(tar_of({"rank_0.log": b"deep\n"}))
    outer = zip_of({"node-1.tgz": inner, "note.txt": b"flat\n"})
    bundle = bundle_of(("all.tar.zst", zstandard.compress(tar_of({"all.zip": outer}))))
    assert contents(bundle) == {
        "all.tar.zst!all.zip!node-1.tgz!rank_0.log": b"deep\n",
        "all.tar.zst!all.zip!note.txt": b"flat\n",
    }


def test_archives_nested_too_deep_are_refused_alone(bundle_of) -> None:
    content = b"bottom\n"
    for _ in range(10):
        content = gzip.compress(content)
    bundle = bundle_of(("deep.gz", content), ("flat.log", b"text\n"), limits=Limits(depth=4))
    assert contents(bundle) == {"flat.log": b"text\n"}
    assert refusals(bundle) == {"deep.gz": "nested deeper than 4 archives"}


def test_an_archive_that_holds_itself_ends(bundle_of) -> None:
    # A quine would unpack for ever; depth ends it. A chain of equal archives is the same to us.
    content = zip_of({"r.zip": b"x"})
    for _ in range(20):
        content = zip_of({"r.zip": content})
    bundle = bundle_of(("r.zip", content))
    assert bundle.files == []
    assert "nested deeper" in bundle.refused[0].why


def test_plain_files_are_not_copied(bundle_of, tmp_path: Path) -> None:
    bundle = bundle_of(("logs/rank_0.log", b"text\n"))
    assert bundle.files[0].path == tmp_path / "logs" / "rank_0.log"


def test_a_folder_is_walked_and_named_from_its_root(bundle_of, tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    assert contents(bundle_of(tmp_path / "in")) == FILES


def test_several_folders_keep_their_own_names(bundle_of, tmp_path: Path) -> None:
    for node in ("node-1", "node-2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "rank_0.log").write_bytes(node.encode())
    bundle = bundle_of(tmp_path / "node-1", tmp_path / "node-2")
    assert contents(bundle) == {"node-1/rank_0.log": b"node-1", "node-2/rank_0.log": b"node-2"}


def test_truth_is_never_read_nor_listed(bundle_of, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "truth.json").write_bytes(b"{}")
    archive = tar_of({"case/truth.json": b"{}", "case/a.log": b"x\n"})
    bundle = bundle_of(tmp_path / "in", ("a.tar", archive))
    assert set(contents(bundle)) == {"a.tar!case/a.log"}
    assert bundle.refused == []


def test_a_source_that_is_not_there_is_a_mistake_of_the_user(bundle_of) -> None:
    with pytest.raises(LoadError, match="nowhere: No such file or directory; give a file, a folder or an archive"):
        bundle_of("nowhere")


def test_standard_input_is_a_source(bundle_of, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(ARCHIVES["a.tar.gz"])

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert contents(bundle_of("-")) == {f"stdin!{member}": content for member, content in FILES.items()}


def test_a_zip_on_standard_input_is_a_source(bundle_of, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(ARCHIVES["a.zip"])

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert contents(bundle_of("-")) == {f"stdin!{member}": content for member, content in FILES.items()}


def test_an_upload_is_known_by_the_name_that_the_user_gave(bundle_of, tmp_path: Path) -> None:
    (tmp_path / "0001").write_bytes(ARCHIVES["a.zip"])
    bundle = bundle_of(NamedFile("../../etc/evidence.zip", tmp_path / "0001"))
    assert all(name.startswith("../../etc/evidence.zip!") for name in contents(bundle))
    assert all(tmp_path in found.path.parents for found in bundle.files)


# ---- made in order to harm ------------------------------------------------------------------


EVIL_NAMES = {
    "/etc/cron.d/evil": "leads out",
    "../../evil": "leads out",
    "a/../../evil": "leads out",
    "..\\evil": "leads out",
    "C:\\evil": "leads out",
    "\\\\host\\evil": "leads out",
    "NUL": "name of a device",
    "logs/com1.txt": "name of a device",
    "a\nb": "control characters",
    "x" * 2000: "longer than",
}


@pytest.mark.parametrize("make", [tar_of, zip_of], ids=["tar", "zip"])
def test_no_member_leaves_its_folder(make, bundle_of, tmp_path: Path) -> None:
    names = [name for name in EVIL_NAMES if make is tar_of or len(name) < 2000]
    before = set(tmp_path.parent.iterdir())
    bundle = bundle_of(("a.bin", make({**dict.fromkeys(names, b"evil"), "good.log": b"good"})))

    assert contents(bundle) == {"a.bin!good.log": b"good"}
    assert len(bundle.refused) == len(names)
    for name in names:
        shown = "a.bin!" + "".join(c if c.isprintable() else "\ufffd" for c in name)
        assert EVIL_NAMES[name] in refusals(bundle)[shown]
    assert set(tmp_path.parent.iterdir()) == before


def test_links_and_devices_in_a_tar_are_refused_and_listed(bundle_of) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, target in (
            ("link", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard", tarfile.LNKTYPE, "good.log"),
            ("disk", tarfile.BLKTYPE, ""),
            ("terminal", tarfile.CHRTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("sparse", tarfile.GNUTYPE_SPARSE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
        info = tarfile.TarInfo("good.log")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"good"))
    bundle = bundle_of(("a.tar", out.getvalue()))
    assert contents(bundle) == {"a.tar!good.log": b"good"}
    assert {name: why.split()[1] for name, why in refusals(bundle).items() if "archive" in why} == {
        "a.tar!link": "link",
        "a.tar!hard": "link",
        "a.tar!disk": "device",
        "a.tar!terminal": "device",
        "a.tar!pipe": "device",
    }
    assert refusals(bundle)["a.tar!sparse"] == "an entry of a tar that is no file"


def test_links_in_a_zip_are_refused_and_listed(bundle_of) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    bundle = bundle_of(("a.zip", out.getvalue()))
    assert bundle.files == []
    assert refusals(bundle) == {"a.zip!link": "a link inside an archive"}


def test_links_in_a_folder_are_not_followed(bundle_of, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "a.log").write_bytes(b"x\n")
    bundle = bundle_of(tmp_path / "in")
    assert contents(bundle) == {"a.log": b"x\n"}
    assert set(refusals(bundle)) == {"out", "loop"}


def test_pipes_and_sockets_in_a_folder_are_listed_and_not_opened(bundle_of, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / "rank_0.pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "in" / "agent.sock"))
        bundle = bundle_of(tmp_path / "in")
    assert bundle.files == []
    assert refusals(bundle) == dict.fromkeys(("rank_0.pipe", "agent.sock"), "neither a file nor a folder")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_decompression_bomb_is_refused_alone(ending: str, bundle_of) -> None:
    bomb = COMPRESSORS[ending](bytes(64 << 20))
    inside = tar_of({"bomb": bomb, "good.log": b"good\n"})
    bundle = bundle_of(("bomb.log", bomb), ("a.tar", inside), ("b.log", b"text\n"), limits=Limits(ratio=200))
    assert contents(bundle) == {"a.tar!good.log": b"good\n", "b.log": b"text\n"}
    assert refusals(bundle) == dict.fromkeys(("bomb.log", "a.tar!bomb"), "grows more than 200-fold when unpacked")


def test_a_zip_bomb_of_shared_content_is_stopped_by_the_total(bundle_of) -> None:
    bundle = bundle_of(
        ("a.zip", zip_of({f"{i}.log": random.Random(i).randbytes(1000) * 10 for i in range(100)})),
        limits=Limits(total_bytes=200_000),
    )
    assert sum(found.size_bytes for found in bundle.files) <= 200_000
    assert "more than 200000 bytes after unpacking; the rest is not read" in refusals(bundle).values()
    assert len(bundle.files) + len(bundle.refused) == 100


def test_a_file_above_its_limit_is_refused_alone(bundle_of) -> None:
    bundle = bundle_of(("a.tar", tar_of({"big": b"x" * 100_000, "small": b"y"})), limits=Limits(file_bytes=50_000))
    assert contents(bundle) == {"a.tar!small": b"y"}
    assert refusals(bundle) == {"a.tar!big": "more than 50000 bytes after unpacking"}


def test_more_members_than_allowed_are_not_read(bundle_of) -> None:
    bundle = bundle_of(("a.tar", tar_of({f"{i}.log": b"x" for i in range(50)})), limits=Limits(members=10))
    assert len(bundle.files) == 10
    assert len(bundle.refused) <= 10


def test_a_zip_whose_directory_would_fill_the_memory_is_refused(bundle_of) -> None:
    content = bytearray(zip_of({"a": b"x"}))
    at = content.rfind(b"PK\x05\x06")
    struct.pack_into("<I", content, at + 12, 0xF0000000)
    bundle = bundle_of(("a.zip", bytes(content)))
    assert bundle.files == []
    assert "directory of 4026531840 bytes" in bundle.refused[0].why


def test_a_long_name_header_that_would_fill_the_memory_is_refused(bundle_of) -> None:
    header = bytearray(tarfile.TarInfo("././@LongLink").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"L"
    header[124:136] = b"77777777777\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    bundle = bundle_of(("a.tar", bytes(header) + bytes(1 << 16)))
    assert bundle.files == []
    assert "at most 1048576 are read" in bundle.refused[0].why


def test_encrypted_members_are_refused_and_listed(bundle_of) -> None:
    content = bytearray(zip_of({"secret": b"x", "open": b"y"}))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(magic) + offset] |= 1
    bundle = bundle_of(("a.zip", bytes(content)))
    assert contents(bundle) == {"a.zip!open": b"y"}
    assert refusals(bundle) == {"a.zip!secret": "encrypted"}


def test_a_checkpoint_is_not_unpacked(bundle_of) -> None:
    bundle = bundle_of(("model.pt", zip_of({"model/data.pkl": b"\x80\x02.", "model/data/0": b"x"})))
    assert bundle.files == []
    assert refusals(bundle) == {"model.pt": "a PyTorch checkpoint, which is no evidence"}


# ---- damaged -----------------------------------------------------------------------------------


LINES = b"".join(b"line %d of a log that was being written\n" % i for i in range(20_000))


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_stream_cut_short_keeps_what_came_out(ending: str, bundle_of) -> None:
    whole = COMPRESSORS[ending](random.Random(1).randbytes(400_000) + LINES)
    bundle = bundle_of((f"a.log.{ending}", whole[:-2000]))
    (found,) = bundle.files
    kept = found.path.read_bytes()
    assert (random.Random(1).randbytes(400_000) + LINES).startswith(kept)
    # bzip2 gives out whole blocks only.
    assert len(kept) > (0 if ending == "bz2" else 300_000)
    if ending != "zst":  # zstandard does not say
        assert "cut short" in (found.problem or "")


def test_a_gzip_cut_anywhere_is_read_up_to_there(bundle_of) -> None:
    whole = gzip.compress(LINES[:3000])
    for end in range(12, len(whole), 7):
        bundle = bundle_of(("a.log.gz", whole[:end]))
        assert LINES.startswith(bundle.files[0].path.read_bytes())
        assert "cut short" in (bundle.files[0].problem or "")


def test_a_wrong_checksum_at_the_end_keeps_the_content(bundle_of) -> None:
    whole = bytearray(gzip.compress(LINES))
    whole[-6] ^= 1
    (found,) = bundle_of(("a.log.gz", bytes(whole))).files
    # zlib gives out the last byte together with its verdict.
    assert found.path.read_bytes() in (LINES, LINES[:-1])
    assert "broken after" in (found.problem or "")


def test_gzip_streams_one_after_the_other_are_one_file(bundle_of) -> None:
    content = gzip.compress(b"one\n") + gzip.compress(b"two\n") + bytes(100)
    (found,) = bundle_of(("a.log.gz", content)).files
    assert found.path.read_bytes() == b"one\ntwo\n"
    assert found.problem is None


def test_a_tar_cut_short_keeps_the_members_before(bundle_of) -> None:
    whole = tar_of({"a.log": b"a" * 1000, "b.log": b"b" * 5000})
    bundle = bundle_of(("a.tar", whole[:3500]))
    found = {f.name: f for f in bundle.files}
    assert found["a.tar!a.log"].path.read_bytes() == b"a" * 1000
    # Header, 1,000 bytes in two blocks, header: 1,452 bytes of the second are left.
    assert found["a.tar!b.log"].path.read_bytes() == b"b" * (3500 - 512 - 1024 - 512)
    assert "cut short" in (found["a.tar!b.log"].problem or "")
    assert "cut short" in refusals(bundle)["a.tar"]


def test_a_damaged_header_ends_the_tar_and_keeps_the_members_before(bundle_of) -> None:
    whole = bytearray(tar_of({"a.log": b"a", "b.log": b"b"}))
    whole[1024 + 10] ^= 0xFF
    bundle = bundle_of(("a.tar", bytes(whole)))
    assert contents(bundle) == {"a.tar!a.log": b"a"}
    assert refusals(bundle) == {"a.tar": "a tar header with a wrong checksum; what came before is read"}


def test_a_damaged_member_of_a_zip_leaves_the_others_alone(bundle_of) -> None:
    content = bytearray(zip_of({"a.log": LINES, "b.log": b"b"}))
    content[200] ^= 0xFF
    bundle = bundle_of(("a.zip", bytes(content)))
    found = {f.name: f for f in bundle.files}
    assert found["a.zip!b.log"].path.read_bytes() == b"b"
    assert "broken after" in (found["a.zip!a.log"].problem or "")


@pytest.mark.parametrize("name", ARCHIVES.keys())
def test_flipped_bits_give_files_or_reasons_and_never_a_crash(name: str, bundle_of) -> None:
    dice = random.Random(name)
    for _ in range(60):
        content = bytearray(ARCHIVES[name])
        for _ in range(dice.choice((1, 3, 20))):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        bundle = bundle_of((name, bytes(content)))
        assert bundle.files or bundle.refused


def test_a_broken_archive_leaves_the_others_alone(bundle_of) -> None:
    bundle = bundle_of(("bad.zip", b"PK\x03\x04" + bytes(100)), ("good.tar", ARCHIVES["a.tar"]))
    assert set(contents(bundle)) == {f"good.tar!{member}" for member in FILES}
    assert refusals(bundle) == {"bad.zip": "a zip without its directory; it is cut short or damaged"}


def test_memory_does_not_grow_with_the_archive(bundle_of) -> None:
    compressor = zlib.compressobj(wbits=31)
    piece = random.Random(2).randbytes(1 << 20)
    content = b"".join(compressor.compress(piece) for _ in range(48)) + compressor.flush()
    tracemalloc.start()
    bundle = bundle_of(("a.log.gz", content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bundle.files[0].size_bytes == 48 << 20
    assert peak < 8 << 20


def test_what_nobody_wants_of_an_archive_is_never_put_on_disk(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    big = b"x" * (64 << 10)
    archive.write_bytes(tar_of({"wanted.log": b"text\n", "strange.bin": b"\x00\x01", "big.bin": big}))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    bundle = unpack([archive], folder, limits=NORMAL, wanted=lambda name, content: name.endswith(".log"))
    by_name = {found.name.rpartition("!")[2]: found for found in bundle.files}
    assert by_name["strange.bin"].sha256 == hashlib.sha256(b"\x00\x01").hexdigest()
    assert by_name["strange.bin"].size_bytes == 2
    assert by_name["big.bin"].sha256 is None
    assert sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file()) == [b"text\n", big]
