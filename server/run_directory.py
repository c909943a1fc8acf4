"""The folder a run writes: what may be shown, and, apart from it, what may not.

    config.json     the settings (public; the seed is not among them)
    ledger.jsonl    every release and its cost
    released.json   values that were released before the first round, if any
    metrics.jsonl   a line for each round, from accounted releases only
    checkpoint/     the last round's model and optimizer
    model/          the result
    result.json     the figures
    aborted.json    instead of a result: why in kind a run ended early, until it is resumed
    report.html, plots/
    private/        seeds, cohort sizes, node failures: not for release

Every file is replaced whole or appended a line at a time, so a crash leaves nothing half-written.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from preference.judgements import InputError
from privacy.durable import replace_file
from server.config import RunConfig


class RunDirectory:
    """An open run directory.

    Args:
        config: its ``out`` names the folder; with ``resume`` it must hold the same run.

    Raises:
        InputError: the folder holds another run or cannot be used, or there is nothing to resume.
    """

    def __init__(self, config: RunConfig) -> None:
        self.path = Path(config.out).expanduser().absolute()
        self.private = self.path / "private"
        self._config = config
        settings = self.path / "config.json"
        try:
            if settings.exists():
                self._check_same(settings)
            elif config.resume:
                raise InputError(f"--resume: there is no run in {self.path}")
            elif self._occupied():
                raise InputError(f"--out {self.path} is not empty; choose another folder")
            self._new = not settings.exists()
            self.private.mkdir(parents=True, exist_ok=True)
            self.private.chmod(0o700)
            (self.path / "aborted.json").unlink(missing_ok=True)
            if self._new:
                split = config.seed if config.seed >= 0 else secrets.randbits(63)
                self.write_json("private/seed.json", {"seed": config.seed, "split": split})
                self.write_json("config.json", config.promise())
        except OSError as error:
            raise InputError(f"--out {self.path} cannot be used: {error.strerror}") from None

    def _occupied(self) -> bool:
        """Whether the folder holds more than what a run leaves that is killed in its first step."""

        def ours(path: Path) -> bool:
            seed = path.parent == self.private and "seed.json" in path.name
            return seed or path == self.private or path.name.startswith(".config.json.")

        found = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return self.path.exists() and not all(ours(path) for path in found)

    def _check_same(self, settings: Path) -> None:
        if not self._config.resume:
            raise InputError(
                f"--out {self.path} holds a run already; continue it with --resume, "
                "or choose another folder"
            )
        try:
            before = json.loads(settings.read_text(encoding="utf-8"))
            before["seed"] = json.loads((self.private / "seed.json").read_text())["seed"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.path} cannot be resumed: {error}") from None
        now = {**self._config.promise(), "seed": self._config.seed}
        changed = sorted(name for name in now if before.get(name) != now[name])
        if changed:
            name = changed[0]
            raise InputError(
                f"--resume with other settings: --{name.replace('_', '-')} was "
                f"{before.get(name)!r} and is now {now[name]!r}; use the settings of the run, "
                "or another --out"
            )

    def discard_if_unused(self) -> None:
        """Remove a folder that this run made and released nothing into, so it can be reused."""
        ledger = self.ledger_path
        released = ledger.exists() and len(ledger.read_bytes().splitlines()) > 1
        if self._new and not released:
            shutil.rmtree(self.path)

    def abort(self, reason: str, sentence: str, private: Mapping[str, object]) -> None:
        """Note that the run ended early: why in kind, and exactly what happened only privately."""
        self.log_private({"aborted": reason, **private})
        self.write_json("aborted.json", {"aborted": reason, "because": sentence})

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.path / "ledger.jsonl"

    @property
    def result(self) -> dict[str, Any] | None:
        """The figures of a run that has ended, else None."""
        path = self.path / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def split_seed(self) -> int:
        """The secret seed of who is held out: the run's own, or one drawn once and kept.

        Drawn again after a crash it would hold out people who had been trained on before.
        """
        return int(json.loads((self.private / "seed.json").read_text(encoding="utf-8"))["split"])

    @property
    def run_name(self) -> str:
        """A public name of the run, the same after every resume."""
        return hashlib.blake2b(f"run {self.split_seed}".encode(), digest_size=12).hexdigest()

    def keep_nodes(self, nodes: int) -> None:
        """Note over how many nodes the users are spread.

        Raises:
            InputError: a seeded run goes on with another number. Sums would differ in their last
                digits, so that no replay would be recognised and each be charged again.
        """
        path = self.private / "nodes.json"
        before = json.loads(path.read_text(encoding="utf-8"))["nodes"] if path.exists() else nodes
        if before != nodes and self._config.seed >= 0:
            raise InputError(
                f"--resume with other settings: the users were on {before} nodes and are now on "
                f"{nodes}, which a seeded run cannot repeat; use the same --users-per-node"
            )
        self.write_json("private/nodes.json", {"nodes": nodes})

    def once(self, name: str, release: Callable[[], int]) -> int:
        """A value that is released once in a run and kept in ``released.json``.

        A crash between the release and the file costs one more release when the run is resumed.
        """
        path = self.path / "released.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if name not in kept:
            kept[name] = release()
            self.write_json("released.json", kept)
        return int(kept[name])

    def write_json(self, name: str, data: Mapping[str, Any]) -> None:
        """Replace a JSON file."""
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        replace_file(self.path / name, text.encode())

    def log_private(self, line: Mapping[str, object]) -> None:
        """Append to the log that is not for release."""
        with (self.private / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append the metrics of a round."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics; a line torn by a crash is left out."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def save_checkpoint(self, round_: int, state: Mapping[str, np.ndarray]) -> None:
        """Replace the checkpoint; it is on disk when this returns."""
        (self.path / "checkpoint").mkdir(exist_ok=True)
        arrays = {"round": np.array([round_]), **state}
        replace_file(self.path / "checkpoint" / "state.safetensors", save(arrays))

    def load_checkpoint(self) -> tuple[int, dict[str, np.ndarray]] | None:
        """The last checkpoint's round and state, or None if there is none."""
        path = self.path / "checkpoint" / "state.safetensors"
        if not path.exists():
            return None
        arrays = load_file(path)
        return int(arrays.pop("round")[0]), arrays

    def rewind_metrics(self, round_: int) -> None:
        """Drop metrics of rounds after ``round_``: they will be run, and written, again."""
        kept = [line for line in self.metrics() if line["round"] <= round_]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept)
        replace_file(self.path / "metrics.jsonl", text.encode())
