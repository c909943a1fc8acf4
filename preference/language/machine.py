"""What decides the last digits of what a network computes, beside its weights and what it reads."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

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


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.processor())
