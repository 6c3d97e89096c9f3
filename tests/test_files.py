from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from xyd.errors import CheckpointError
from xyd.files import Lock, RunDir, atomic_write, free_bytes, sha256_bytes, sha256_file


@pytest.mark.parametrize("data", [b"\x00\xff", "衔言渡意\n", lambda file: file.write(b"by hand")])
def test_atomic_write(tmp_path: Path, data: object) -> None:
    path = tmp_path / "new" / "folder" / "file"
    atomic_write(path, data)
    wanted = {bytes: data, str: str(data).encode()}.get(type(data), b"by hand")
    assert path.read_bytes() == wanted
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt(), SystemExit(143)])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half of the new")
        raise failure

    with pytest.raises(type(failure)):
        atomic_write(path, write)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_file_is_complete_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    order: list[str] = []
    real_replace, real_fsync = os.replace, os.fsync

    def replace(source: str, target: Path) -> None:
        assert Path(source).parent == path.parent
        assert Path(source).read_bytes() == b"new"
        order.append("replace")
        real_replace(source, target)

    def fsync(descriptor: int) -> None:
        order.append("fsync")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", fsync)
    atomic_write(path, b"new")
    assert order == ["fsync", "replace", "fsync"]


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    path, plain = tmp_path / "file", tmp_path / "plain"
    plain.touch()
    atomic_write(path, b"")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    atomic_write(path, b"again")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_hashes(tmp_path: Path) -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_bytes(b"") == empty
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 << 20) + b"y")
    assert sha256_file(path) == sha256_bytes(path.read_bytes()) != empty


def test_free_bytes_of_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "yet") > 0


def test_run_dir_keeps_everything_inside() -> None:
    run = RunDir(Path("runs/x"))
    names = [name for name, member in vars(RunDir).items() if isinstance(member, property)]
    paths = [getattr(run, name) for name in names]
    assert len(set(paths)) == len(names) == 11
    assert all(path.parent == run.root for path in paths)


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "one")
    with Lock(run), pytest.raises(CheckpointError, match=f"process {os.getpid()}.*is writing this run"):
        Lock(run).acquire()
    with Lock(run):  # free again
        assert not run.root.exists()
    assert list((tmp_path / "runs").iterdir()) == []
