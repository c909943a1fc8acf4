"""Rows that are found under their names, in any number of files; references and embeddings, whose
tests try crashes, damage and several processes, are made of them."""

import numpy as np
import pytest

from murmuration.preference.language.kept_rows import KeptRows


def name(number):
    return b"%032d" % number


def kept(folder, **more):
    rows = KeptRows(folder, "key", "numbers", **more)
    rows.look()
    return rows


@pytest.mark.parametrize("width", [0, 3])
def test_rows_are_found_by_name(tmp_path, width):
    shape = (width,) if width else ()
    values = np.arange(10 * max(1, width), dtype=float).reshape(10, *shape)
    first = kept(tmp_path, width=width)
    first.add([name(n) for n in (7, 1, 4)], values[[7, 1, 4]])
    first.write()
    first.add([name(2)], values[[2]])
    row_N, there_N = first.find([name(n) for n in (4, 2, 9)])
    assert there_N.tolist() == [True, True, False]
    assert np.array_equal(row_N, [values[4], values[2], np.zeros(shape)])
    first.write()
    row_N, there_N = kept(tmp_path, width=width).find([name(n) for n in range(10)])
    assert np.flatnonzero(there_N).tolist() == [1, 2, 4, 7]
    assert np.array_equal(row_N[there_N], values[there_N])


def test_a_row_with_a_nan_is_not_kept(tmp_path):
    rows = kept(tmp_path, width=2)
    rows.add([name(1), name(2)], np.array([[1.0, np.nan], [1.0, 2.0]]))
    assert rows.find([name(1), name(2)])[1].tolist() == [False, True]


def test_others_of_the_same_folder_are_not_taken(tmp_path):
    rows = kept(tmp_path)
    rows.add([name(1)], np.ones(1))
    rows.write()
    for other in (KeptRows(tmp_path, "another", "numbers"), KeptRows(tmp_path, "key", "others")):
        other.look()
        assert not other.find([name(1)])[1].any()


def test_another_key_in_the_name_does_not_make_it_ones_own(tmp_path, caplog):
    rows = kept(tmp_path)
    rows.add([name(1)], np.ones(1))
    rows.write()
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / file.name.replace("key", "other"))
    other = KeptRows(tmp_path, "other", "numbers")
    other.look()
    assert not other.find([name(1)])[1].any() and "damaged" in caplog.text


def test_nothing_known_nothing_asked(tmp_path):
    rows = kept(tmp_path / "none")
    rows.write()
    row_N, there_N = rows.find([])
    assert len(row_N) == len(there_N) == 0 and not (tmp_path / "none").exists()
