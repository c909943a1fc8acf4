"""What decides last digits is named."""

import pytest
import torch

from murmuration.preference.language import machine
from murmuration.preference.language.machine import last_digits


def test_libraries_processor_and_threads_are_named():
    said = [*last_digits(torch.device("cpu"), 3)]
    assert f"torch {torch.__version__.partition('+')[0]}" in " ".join(said)
    assert said[-1] == "cpu, 3 threads"
    assert said != [*last_digits(torch.device("cpu"), 2)]


def test_a_package_that_is_not_there(monkeypatch):
    monkeypatch.setattr("murmuration.preference.language.machine._PACKAGES", ("no-such-package",))
    assert next(last_digits(torch.device("cpu"), 1)) == "no no-such-package"


@pytest.mark.parametrize(
    ("flags", "there"),
    [("fpu avx512f avx512_bf16", True), ("amx_tile amx_bf16", True), ("fpu avx512f avx2", False)],
)
def test_processors_that_multiply_bfloat16(monkeypatch, flags, there):
    monkeypatch.setattr(machine, "_line", {"flags": f"flags\t\t: {flags}"}.get)
    assert machine.multiplies_bfloat16() == there


def test_of_another_system_it_is_not_known(monkeypatch):
    monkeypatch.setattr(machine, "_line", lambda key: "")
    assert not machine.multiplies_bfloat16()
