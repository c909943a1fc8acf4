"""Rows in memory and in a file are the same rows; of the file nobody sees anything."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import mapped_rows
from murmuration.preference.features.mapped_rows import filled_rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files go, and from how few bytes on rows lie in one."""
    monkeypatch.setattr(mapped_rows.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 1000)
    return tmp_path


def numbers(x_RD):
    x_RD.add_(torch.arange(x_RD.numel(), dtype=x_RD.dtype).view(x_RD.shape))


def alone(code, *arguments):
    """Python code in a process of its own."""
    head = "from murmuration.preference.features import mapped_rows\nmapped_rows.IN_MEMORY = 0\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 31, 40, 5000])
def test_what_was_filled_in(folder, rows, dtype):
    found = filled_rows(rows, 8, dtype, numbers)
    assert found.dtype == dtype
    assert found.flatten().tolist() == list(range(rows * 8))


def test_only_many_rows_lie_in_a_file(folder, monkeypatch):
    opened = []
    real = mapped_rows.tempfile.TemporaryFile
    monkeypatch.setattr(
        mapped_rows.tempfile, "TemporaryFile", lambda **more: opened.append(more) or real(**more)
    )
    filled_rows(31, 8, torch.float32, numbers)  # 992 bytes
    assert not opened
    filled_rows(32, 8, torch.float32, numbers)
    assert len(opened) == 1


def test_the_file_is_the_owners_and_has_no_name(folder, monkeypatch):
    files = []
    real = mapped_rows.tempfile.TemporaryFile

    def opened(**more):
        files.append(real(**more))
        return files[-1]

    def fill(x_RD):
        assert list(folder.iterdir()) == []
        about = os.fstat(files[0].fileno())
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert about.st_nlink == 0
        numbers(x_RD)

    monkeypatch.setattr(mapped_rows.tempfile, "TemporaryFile", opened)
    found = filled_rows(500, 8, torch.float32, fill)
    assert files[0].closed
    assert str(folder) in Path("/proc/self/maps").read_text()
    assert found[-1, -1] == 3999


def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    code = (
        "import os, signal, sys, tempfile, torch\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "rows = mapped_rows.filled_rows(1000, 100, torch.float32, lambda x: x.fill_(1.0))\n"
        "assert rows.sum() == 100_000\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert alone(code, tmp_path).returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_filled_rows_cannot_be_written_to():
    """The process ends: better than features that change unnoticed."""
    code = (
        "import torch\n"
        "rows = mapped_rows.filled_rows(10, 10, torch.float32, lambda x: x.fill_(1.0))\n"
        "print(rows.sum().item(), flush=True)\n"
        "rows[0, 0] = 2.0\n"
    )
    done = alone(code)
    assert done.stdout == "100.0\n"
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGBUS)


def test_mapped_rows_are_not_the_processs_own_memory():
    code = (
        "import torch\n"
        "from pathlib import Path\n"
        "def own():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(l.split()[1]) for l in lines if l.startswith('RssAnon')) / 1024\n"
        "def fill(x):\n"
        "    for part in x.split(1000): part.fill_(1.0)\n"
        "before = own()\n"
        "rows = mapped_rows.filled_rows(100_000, 256, torch.float32, fill)\n"  # 98 MiB
        "assert (rows @ torch.ones(256)).sum() == 25_600_000\n"
        "print(own() - before)\n"
    )
    assert float(alone(code).stdout) < 50


def test_too_little_room_is_said_before_anything_is_written():
    """Writing to a mapped file without room behind it would kill the process."""
    code = (
        "import resource, torch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "mapped_rows.filled_rows(10_000, 100, torch.float32, lambda x: x.fill_(1.0))\n"
    )
    done = alone(code)
    assert done.returncode == 1
    assert "InputError: rows cannot be kept in a temporary file (File too large)" in done.stderr
    assert "TMPDIR" in done.stderr


@pytest.mark.parametrize("length", [100, 3000])
def test_room_that_ends_in_the_middle_of_joined_rows_is_one_error(length):
    """Also where the last of them is written when the file is closed."""
    code = (
        "import resource, sys, numpy as np\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "row = np.zeros(int(sys.argv[1]), np.uint8)\n"
        "mapped_rows.joined((row for _ in range(303_000 // len(row))), row.dtype)\n"
    )
    done = alone(code, length)
    said = "InputError: rows cannot be kept in a temporary file (File too large)"
    assert said in done.stderr.splitlines()[-1]


def test_a_full_disk(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(mapped_rows.os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"No space left on device.*TMPDIR"):
        filled_rows(500, 8, torch.float32, numbers)
    assert list(folder.iterdir()) == []
