"""This machine's resources for a network: device, number type, memory.

And what of it decides the last digits of what is computed, beside weights and what is read.
"""

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.within import within

_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
#: A processor's caches hold no more: four times as many take half as long again.
_BATCH_TOKENS = {"cpu": 2048, "cuda": 32_768}
#: Bytes for the gradients of single users, or texts, that are kept at a time; at least one user's.
MOST_ROW_BYTES = {"cpu": 512 * 2**20, "cuda": 8 * 2**30}
_PACKAGES = ("torch", "transformers", "peft")


_no_gpu: ContextVar[bool] = ContextVar("no_gpu", default=False)


def without_gpu() -> AbstractContextManager[None]:
    """Run what is loaded within on the processor: GPUs are left to others, who fill them."""
    return within(_no_gpu, True)


def usual_device() -> torch.device:
    """A GPU if there is one, and it is not left to others."""
    there = torch.cuda.is_available() and not _no_gpu.get()
    return torch.device("cuda" if there else "cpu")


def usual_dtype() -> str:
    """bfloat16 where there is a GPU that computes in it, else float32."""
    there = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if there else "float32"


def fastest_dtype() -> str:
    """bfloat16 also where there is no GPU, and the processor multiplies in it; else as
    `usual_dtype`."""
    by_processor = usual_device().type == "cpu" and multiplies_bfloat16()
    return "bfloat16" if by_processor else usual_dtype()


def usual_batch(device: torch.device) -> int:
    """Tokens to compute at a time."""
    return _BATCH_TOKENS.get(device.type, _BATCH_TOKENS["cpu"])


def most_rows(device: torch.device, dimension: int) -> int:
    """The most gradients of D numbers that are kept at a time, where several are: at least one."""
    room = MOST_ROW_BYTES.get(device.type, MOST_ROW_BYTES["cpu"])
    return max(1, room // (4 * dimension))


@contextmanager
def out_of_memory_advice(activations: bool = False) -> Iterator[None]:
    """Turn an out-of-memory error inside into one that names the option to change; ``activations``
    if they are kept and need not be.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        raise InputError(
            "out of memory: lower --batch-tokens (what is computed at a time)"
            + (", or try --checkpointing (activations are computed once more)" * activations)
        ) from error


def _out_of_memory(error: BaseException) -> bool:
    """True if memory ran out: a device's, Python's, or that of torch on a CPU, whose error has no
    type of its own.
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(error)
    return "DefaultCPUAllocator" in message and (
        "can't allocate memory" in message or "not enough memory" in message
    )


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
    """True if the CPU multiplies bfloat16 natively. Others emulate it, slower than float32. (Known
    for Linux on x86 only.)
    """
    flags = _line("flags").partition(":")[2].split()
    return not _BFLOAT16.isdisjoint(flags)


def _processor() -> str:
    return _line("model name") or platform.processor()


def _line(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(key)), "")
