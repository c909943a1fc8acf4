"""The memory of a whole run as the number of users grows.

Of linear rewards, and of a small language model on users' own texts, with about as many for each
as on Stack Overflow (`research.bench.synthetic_users`).

Each run has a process of its own. Two figures: the most that was in memory of what the process
uses, and the most of it that is the process's own. The difference is mostly mapped files, of
features, texts and tokens (``preference.features.mapped_rows``): they stay in memory as long as
there is room, and only as long.
"""

import json
import resource
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from murmuration.client.store import load
from murmuration.research.bench.growth import measure
from murmuration.research.bench.language_model import LmBench, saved_model
from murmuration.research.bench.setting import Setting, timed
from murmuration.research.bench.synthetic_users import few_texts
from murmuration.server.evaluation import on_bad_rows

MADE = "made for it"  # a base
POINTS = (
    *(Setting(users=n, cohort=1000) for n in (2500, 10_000, 40_000, 100_000)),
    Setting(users=1_000_000, cohort=1000, each=3),
)

TEXT_POINTS = tuple(
    Setting(users=n, cohort=50, each=16, base=MADE) for n in (10_000, 100_000, 342_477)
)
QUICK = replace(TEXT_POINTS[0], users=200, cohort=10)
#: The language model: its tokenizer, in bytes, learns its vocabulary from other users' texts.
_MODEL = LmBench(layers=2, width=32, vocabulary=4096)

_BETWEEN = 0.02  # seconds from one look to the next
_STATUS = Path("/proc/self/status")


def measure_memory(setting: Setting, rounds: int) -> dict[str, Any]:
    """The row of a run in a process of its own, with the most memory that process had."""
    of_point = json.dumps(asdict(setting))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "murmuration.research.bench.memory", of_point, str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{setting} failed: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


class OwnMemory:
    """Records this process's own memory, at intervals and at the end (Linux)."""

    def __init__(self) -> None:
        self.most_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "OwnMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._note()

    def _look(self) -> None:
        while not self._ended.wait(_BETWEEN):
            self._note()

    def _note(self) -> None:
        if _STATUS.exists():
            lines = _STATUS.read_text(encoding="utf-8").splitlines()
            (kib,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
            self.most_mib = max(self.most_mib, kib / 1024)


def main(setting: Setting, rounds: int) -> None:
    """Make one run here; print its row as a JSON line."""
    made = saved_model(_MODEL, _tokenizer()) if setting.base == MADE else nullcontext(setting.base)
    with made as base, OwnMemory() as own:
        setting, read = replace(setting, base=base), {}
        if base:  # apart, since a process reads a source once
            with setting.config(rounds) as config:
                given = config.data, config.columns, on_bad_rows(config), config.task, config.schema
                data, seconds = timed(lambda: load(*given))
            read = {"texts": len(data), "read_seconds": seconds}
        row = measure(setting, rounds) | read
    row["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row["own_mib"] = own.most_mib or None
    print(json.dumps(row))


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=_MODEL.vocabulary,
        special_tokens=["[PAD]", "[UNK]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    result.train_from_iterator((row["text"] for row in few_texts()), trainer)
    return result


if __name__ == "__main__":
    main(Setting(**json.loads(sys.argv[1])), int(sys.argv[2]))
