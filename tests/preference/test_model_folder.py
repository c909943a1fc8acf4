"""Folders that are written whole or not at all."""

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.preference.model_folder import replace_folder


def write(text):
    return lambda folder: (folder / "file").write_text(text)


def test_a_folder_is_replaced(tmp_path):
    replace_folder(tmp_path / "m", write("old"), lambda _: None, overwrite=False)
    replace_folder(tmp_path / "m", write("new"), lambda _: None, overwrite=True)
    assert (tmp_path / "m" / "file").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_what_fails_leaves_the_former(tmp_path):
    replace_folder(tmp_path / "m", write("old"), lambda _: None, overwrite=False)

    def fail(folder):
        (folder / "half").write_text("")
        raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        replace_folder(tmp_path / "m", fail, lambda _: None, overwrite=True)
    assert (tmp_path / "m" / "file").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_what_is_there_is_left_alone(tmp_path):
    def no_model(_):
        raise InputError("not a model")

    (tmp_path / "m").mkdir()
    for overwrite, said in ((False, "already exists"), (True, "not a model")):
        with pytest.raises(InputError, match=said):
            replace_folder(tmp_path / "m", write("x"), no_model, overwrite=overwrite)
    assert not list((tmp_path / "m").iterdir())
