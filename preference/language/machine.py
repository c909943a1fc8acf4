"""What decides the last digits of what a network computes, beside its weights and what it reads."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")


def last_digits(device: torch.device, threads: int) -> Iterator[str]:
    """Libraries, processor and ``threads`` of an operation, and a GPU where there is one."""
    for name in _PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"
    yield f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {_processor()}"
    yield f"{device.type}, {threads} threads"
    if device.type == "cuda":
        yield f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"


def multiplies_bfloat16() -> bool:
    """Return whether the processor has products of bfloat16 of its own. One that has not emulates
    them, slower than float32. (Linux on x86 tells; of any other it is not known.)"""
    flags = _line("flags").partition(":")[2].split()
    return not _BFLOAT16.isdisjoint(flags)


def _processor() -> str:
    return _line("model name") or platform.processor()


def _line(key: str) -> str:
    """Return the first line of the system's description of its processors that begins so."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(key)), "")
