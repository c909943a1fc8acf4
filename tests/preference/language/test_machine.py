"""The device and the type of numbers; running out of memory; what decides last digits."""

import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language import machine
from murmuration.preference.language.machine import (
    last_digits,
    out_of_memory_advice,
    usual_device,
    usual_dtype,
    without_gpu,
)


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


@pytest.mark.parametrize(
    ("there", "knows", "expected"),
    [(False, False, "float32"), (True, False, "float32"), (True, True, "bfloat16")],
)
def test_the_usual_type(monkeypatch, there, knows, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: knows)
    assert usual_dtype() == expected


def test_a_gpu_that_is_left_to_others(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert usual_device().type == "cuda"
    with without_gpu():
        assert usual_device().type == "cpu"
    assert usual_device().type == "cuda"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                     "allocate memory: you tried to allocate 4 bytes. Error code 12"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
)  # fmt: skip
def test_out_of_memory_names_what_to_lower(error):
    with pytest.raises(InputError, match="lower --batch-tokens"), out_of_memory_advice():
        raise error


def test_what_torch_says_on_a_processor_is_known():
    with pytest.raises(InputError, match="out of memory: lower"), out_of_memory_advice():
        torch.empty(2**60, dtype=torch.uint8)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not match"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("could not pin memory"),
        RuntimeError("out of memory, said a layer"),
    ],
)
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(RuntimeError) as raised, out_of_memory_advice():
        raise error
    assert raised.value is error
