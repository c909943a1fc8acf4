"""Tokens that were made before: the same, or made anew; and nothing is kept unasked."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from murmuration.preference.features import mapped_rows
from murmuration.preference.language.token_cache import FOLDER, delete_unfinished, written_whole
from murmuration.preference.language.tokens import TextTokens

PROMPTS = ["What now?", "What now?", "And then, when the shop is shut?"]
RESPONSES = ["Wait a year.", "Buy it today!", "Sleep."]


class Counting(PreTrainedTokenizerFast):
    """Counts what it is given."""

    given = 0

    def __call__(self, *args, **more):
        Counting.given += 1
        return super().__call__(*args, **more)


@pytest.fixture
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({letter for text in PROMPTS + RESPONSES for letter in text} | {"\n"} - {"?"})
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(["?", *words])}, "?")
    plain = tokenizers.Tokenizer(model)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    Counting.given = 0
    return Counting(tokenizer_object=plain, eos_token="\n", pad_token="\n")


def same(a, b):
    return all(
        np.array_equal(x, y)
        for x, y in ((a.ids, b.ids), (a.start_T, b.start_T), (a.second_T, b.second_T))
    ) and (a.cut == b.cut)


@pytest.fixture
def made(tokenizer, tmp_path, monkeypatch):
    """Tokens that were written to a folder, the folder, and the file."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    tokens = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    (file,) = (tmp_path / "kept").iterdir()
    return tokens, file


def test_nothing_is_kept_unless_a_folder_is_named(tokenizer, tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert not list(tmp_path.iterdir())


def test_a_second_run_tokenizes_nothing_and_gets_the_same(tokenizer, made):
    first, file = made
    texts = TextTokens(tokenizer, 24)
    before = Counting.given
    again = texts(PROMPTS, RESPONSES)
    assert Counting.given == before
    assert same(first, again)
    assert first.cut == again.cut == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "other",
    [
        lambda t: TextTokens(t, 23)(PROMPTS, RESPONSES),
        lambda t: TextTokens(t, 24)(PROMPTS, RESPONSES, ended=True),
        lambda t: TextTokens(t, 24)(PROMPTS, [*RESPONSES[:2], "Sleep?"]),
        lambda t: TextTokens(t, 24)([*PROMPTS[:2], PROMPTS[2] + RESPONSES[0]], RESPONSES),
        lambda t: TextTokens(t, 24)(PROMPTS[::-1], RESPONSES[::-1]),
    ],
)
def test_whatever_they_depend_on_they_are_made_for(tokenizer, made, other):
    before = Counting.given
    other(tokenizer)
    assert Counting.given > before
    assert len(list(made[1].parent.iterdir())) == 2


def test_another_tokenizer_makes_its_own(tokenizer, made):
    tokenizer.add_tokens(["Wait"])
    found = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert not same(found, made[0])
    assert len(list(made[1].parent.iterdir())) == 2


def test_special_tokens_that_are_read_as_text_are_other_tokens(tokenizer, made):
    tokenizer.split_special_tokens = True
    TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert len(list(made[1].parent.iterdir())) == 2


def _arrays(file, **changed):
    save_file({**load_file(file), **changed}, file, {"key": file.stem, "cut": "1"})


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-5]),
        lambda file: file.write_bytes(b""),
        lambda file: _arrays(file, ids=load_file(file)["ids"] + 10_000),
        lambda file: _arrays(file, ids=load_file(file)["ids"].long()),
        lambda file: _arrays(file, start=load_file(file)["start"] - 1),
        lambda file: _arrays(file, start=load_file(file)["start"].flip(0)),
        lambda file: _arrays(file, second=load_file(file)["second"] + 1000),
        lambda file: _arrays(file, start=load_file(file)["start"][:0]),
        lambda file: _arrays(file, ids=load_file(file)["ids"][:, None]),
        lambda file: _arrays(
            file, start=load_file(file)["start"][:-1], second=load_file(file)["second"][:-1]
        ),
        lambda file: _arrays(file, start=torch.tensor([0, 0, 0, len(load_file(file)["ids"])])),
        lambda file: save_file(load_file(file), file, {"key": "another", "cut": "1"}),
        lambda file: save_file(load_file(file), file, {"key": file.stem, "cut": "many"}),
        lambda file: save_file({"ids": load_file(file)["ids"]}, file, {"key": file.stem}),
    ],
)
def test_what_is_damaged_is_made_anew(tokenizer, made, harm, caplog):
    first, file = made
    first.ids.clone(), harm(file)
    again = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert "tokenized again" in caplog.text
    assert again.start_T.tolist() == first.start_T.tolist()
    caplog.clear()
    assert same(again, TextTokens(tokenizer, 24)(PROMPTS, RESPONSES))
    assert not caplog.text


def test_a_folder_that_cannot_be_written_stops_nothing(tokenizer, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "kept"))
    assert len(TextTokens(tokenizer, 24)(PROMPTS, RESPONSES).second_T) == 3
    assert "cannot be kept" in caplog.text


def test_a_response_that_does_not_fit_is_refused_and_leaves_nothing(tokenizer, made):
    with pytest.raises(ValueError, match="does not fit"):
        TextTokens(tokenizer, 5)(PROMPTS, RESPONSES)
    assert len(list(made[1].parent.iterdir())) == 1


def test_many_tokens_lie_in_a_mapped_file(tokenizer, monkeypatch):
    texts = TextTokens(tokenizer, 24)
    monkeypatch.delenv(FOLDER, raising=False)
    small = texts(PROMPTS, RESPONSES)
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 16)
    assert same(small, texts(PROMPTS, RESPONSES))


# What a process that is no more left half written.

_KEY = "0123456789abcdef" * 4
_PART = f"{_KEY}.0123456789abcdef"
_NAMES = (f"{_KEY}.safetensors", f"{_PART}.references", f"{_PART}.embeddings")
_WRITER = """
import sys
from pathlib import Path
from murmuration.preference.language.token_cache import written_whole

with written_whole(Path(sys.argv[1])) as file:
    file.write_bytes(b"half")
    file.with_name(".tmp12345").write_bytes(b"by a library that writes elsewhere first")
    print("begun", flush=True)
    sys.stdin.read(1)
    file.write_bytes(b"whole")
"""


@pytest.fixture
def writer(tmp_path):
    """A function: a process that is half way through writing a file in the folder ``kept``."""
    begun = []

    def begin(name):
        asked = [sys.executable, "-c", _WRITER, str(tmp_path / "kept" / name)]
        one = subprocess.Popen(
            asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        )
        begun.append(one)
        assert one.stdout and one.stdout.readline() == b"begun\n"
        return one

    yield begin
    for one in begun:
        one.kill()
        one.communicate()


def names(folder):
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("name", _NAMES)
def test_what_a_killed_process_left_is_deleted_by_the_next_run(
    tokenizer, tmp_path, monkeypatch, writer, name
):
    killed = writer(name)
    killed.kill()
    killed.wait()
    (left,) = names(tmp_path / "kept")
    assert left.startswith(".")
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert left not in names(tmp_path / "kept") and len(names(tmp_path / "kept")) == 1


@pytest.mark.parametrize("name", _NAMES)
def test_what_somebody_is_writing_stays(tmp_path, writer, name):
    alive, folder = writer(name), tmp_path / "kept"
    before = names(folder)
    for file in folder.iterdir():
        os.utime(file, (0, 0))  # however old it looks
    delete_unfinished(folder)
    assert names(folder) == before
    alive.communicate(b"x")
    assert alive.returncode == 0
    delete_unfinished(folder)
    assert names(folder) == [name] and (folder / name).read_bytes() == b"whole"


@pytest.mark.parametrize("write", [
    lambda file: save_file({"a": torch.zeros(9)}, file),
    lambda file: file.write_bytes(b"whole"),
])  # fmt: skip
def test_what_this_process_is_writing_stays(tmp_path, write):
    with written_whole(tmp_path / _NAMES[0]) as file:
        write(file)
        delete_unfinished(tmp_path)
    assert names(tmp_path) == [_NAMES[0]]


@pytest.mark.parametrize("module, name", [(os, "open"), (fcntl, "flock")], ids=str)
def test_what_was_taken_for_left_is_begun_again(tmp_path, monkeypatch, module, name):
    """Another process looked before a lock was there, or before it was held."""
    usual, looked = getattr(module, name), []

    def after_a_look(*arguments):
        if not looked:
            looked.append(names(tmp_path))
            delete_unfinished(tmp_path)
            assert not names(tmp_path)
        return usual(*arguments)

    monkeypatch.setattr(module, name, after_a_look)
    with written_whole(tmp_path / _NAMES[0]) as file:
        file.write_bytes(b"whole")
    assert len(looked[0]) == 1
    assert names(tmp_path) == [_NAMES[0]]
    assert (tmp_path / _NAMES[0]).read_bytes() == b"whole"


def test_without_locks_nothing_is_deleted_and_all_is_written(tmp_path, monkeypatch):
    def none(descriptor, operation):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", none)
    with written_whole(tmp_path / _NAMES[0]) as file:
        file.write_bytes(b"whole")
        delete_unfinished(tmp_path)
    assert names(tmp_path) == [_NAMES[0]]


def test_other_files_stay(tmp_path):
    others = [".bashrc", f".{_KEY}", f"{_NAMES[0]}.01234567", f".{_NAMES[0]}.012345678", *_NAMES]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / f".{_NAMES[0]}.7654321").mkdir()
    (tmp_path / f".{_NAMES[0]}.76543210").mkdir()
    (tmp_path / f".{_NAMES[0]}.76543210" / "mine").write_text("without a lock")
    (tmp_path / f".{_NAMES[1]}.76543210").symlink_to(tmp_path / f".{_NAMES[0]}.7654321")
    (tmp_path / f".{_NAMES[1]}.01234567").write_text("no folder")
    before = names(tmp_path)
    delete_unfinished(tmp_path)
    delete_unfinished(tmp_path / "nowhere")
    assert names(tmp_path) == before
