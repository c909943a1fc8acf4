"""What decides last digits is named."""

import torch

from murmuration.preference.language.machine import last_digits


def test_libraries_processor_and_threads_are_named():
    said = [*last_digits(torch.device("cpu"), 3)]
    assert f"torch {torch.__version__.partition('+')[0]}" in " ".join(said)
    assert said[-1] == "cpu, 3 threads"
    assert said != [*last_digits(torch.device("cpu"), 2)]


def test_a_package_that_is_not_there(monkeypatch):
    monkeypatch.setattr("murmuration.preference.language.machine._PACKAGES", ("no-such-package",))
    assert next(last_digits(torch.device("cpu"), 1)) == "no no-such-package"
