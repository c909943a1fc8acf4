"""The folder that a run of training writes: what may be shown, and apart from it what may not.

    config.json     the settings (public; the seed is not among them), and a keyed hash that ties
                    seed and keys to them
    ledger.jsonl    every release and its cost; ledger.jsonl.head: how long it is, and its hash
    base.json       which language model is trained: where it lies, its SHA-256, its commit on a hub
    start.json      a digest of where a linear reward begins
    released.json   values that were released before the first round or after the last, if any
    metrics.jsonl   a line for each round, from accounted releases only
    checkpoint/     the last round's model and optimizer
    model/          the result
    result.json     the figures
    aborted.json    instead of a result: why in kind a run ended early, until it is resumed
    report.html, plots/
    private/        seeds, keys, cohort sizes, node failures, of a simulation hashes of the users'
                    prompts, rows that were given in memory, what of a strategy's state was not
                    released, names of the private runs that it stands on, the folder's
                    lock: not for release

What it has in common with other runs' folders is in ``server.record.run_folder``.
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.chained_record import NO_LINES, Head
from murmuration.privacy.accounting.events import HoldOut
from murmuration.privacy.accounting.ledger import (
    Ledger,
    LedgerError,
    LedgerLoss,
    read_account,
    read_charges,
)
from murmuration.privacy.disclosure import Disclosure, Public, Released, disclosed
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.regular_files import read_regular
from murmuration.privacy.strict_json import strict_json
from murmuration.server.record import checkpoints, resuming
from murmuration.server.record.checkpoints import Checkpoint
from murmuration.server.record.result import Result
from murmuration.server.record.run_files import (
    HEAD,
    PRIVATE_LOG,
    check_of,
    read_json,
    read_metrics,
    read_private_log,
)
from murmuration.server.record.run_folder import RunFolder
from murmuration.strategies.config import CHECK, RunConfig
from murmuration.strategies.spec import Value

#: What has a secret key of its own (``RunDirectory.secret``).
_SECRETS = ("hold-out coins", "registry salt", "run name")


class RunDirectory(RunFolder):
    """An open folder of a run of training, whose lock is held until ``close``.

    Args:
        config: its ``out`` names the folder; with ``resume`` it must hold the same run.

    Raises:
        InputError: the folder holds another run, is in use or cannot be used, or there is nothing
            to resume.
    """

    def __init__(self, config: RunConfig) -> None:
        self._ledger: Ledger | None = None
        self._flush = config.seed < 0
        super().__init__(
            config.out, resume=config.resume, check_same=partial(self._check_same, config)
        )
        if self.is_new:
            with self._closed_on_error():
                self.write_private("seed.json", {"seed": config.seed})
                keys = {purpose: secrets.token_hex(32) for purpose in _SECRETS}
                self.write_private("keys.json", keys)
                settings = config.immutable_fields()
                check = check_of({"settings": settings, "seed": config.seed}, keys)
                self.write_json("config.json", Disclosure.public({**settings, CHECK: check}))

    def close(self) -> None:
        """Let go of the folder, and of its ledger."""
        if self._ledger is not None:
            self._ledger.close()
        super().close()

    def _check_same(self, config: RunConfig, settings: Path) -> None:
        try:
            before = json.loads(read_regular(settings))
            before["seed"] = json.loads(read_regular(self.private / "seed.json"))["seed"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.path} cannot be resumed: {error}") from None
        check = before.pop(CHECK, None)
        now = {**config.immutable_fields(), "seed": config.seed}
        changed = sorted(n for n in {*now, *before} if before.get(n) != now.get(n))
        if changed:
            name = changed[0]
            raise InputError(
                f"--resume with other settings: --{name.replace('_', '-')} was "
                f"{before.get(name)!r} and is now {now.get(name)!r}; use the settings of the run, "
                "or another --out"
            )
        seed = before.pop("seed")
        if check != check_of({"settings": before, "seed": seed}, self._keys):
            raise InputError(
                f"{settings} does not agree with seed.json and keys.json in {self.private}: one of "
                "the three was edited, or is of another run, and with it other users would be held "
                "out than before; bring back undamaged copies"
            )

    def discard_if_unused(self) -> None:
        """Remove a folder that this run made and released nothing into, so it can be reused."""
        if not self.is_new or self._released():
            return
        # Under another name first: another run that begins here meanwhile makes its own folder.
        aside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.discarded")
        with contextlib.suppress(OSError):
            self.path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def _released(self) -> bool:
        """True if anything except a random assignment was charged, or nobody can tell."""
        ledger = self.ledger_path
        if not ledger.exists() or len(ledger.read_bytes().splitlines()) <= 1:
            return False
        try:
            charges = read_charges(ledger)
        except LedgerError:
            return True
        coins = (isinstance(one.event, HoldOut) and not one.event.epsilon for one in charges)
        return not all(coins)

    def open_ledger(self, **promise: Any) -> Ledger:
        """The run's ledger, new or gone on with, which agrees with what else the run has left.

        Args:
            promise: of `Ledger`.

        Raises:
            LedgerLoss: it does not; says what happened to which file.
            LedgerError: it is in use, or of another promise.
        """
        done = resuming.Done.of(self.path)
        ledger = Ledger(self.ledger_path, **promise, begun=self._lock.begun)
        try:
            self._lock.note_begun()
            if what := resuming.missing(self.ledger_path, ledger.account, ledger.has_been_at, done):
                raise LedgerLoss(what)
        except BaseException:
            ledger.close()
            raise
        self._ledger = ledger
        return ledger

    def abort(self, reason: str, sentence: str, private: Mapping[str, object]) -> None:
        """Note that the run ended early: why in kind, and exactly what happened only privately."""
        self.log_private({"aborted": reason, **private})
        # One of few phrases; what that tells of who answered stands in sharp-edges.
        values = Disclosure.public({"aborted": reason, "because": sentence})
        self.write_json("aborted.json", values)

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.path / "ledger.jsonl"

    def finished(self) -> Result | None:
        """The run's result, if it is that of this folder's ledger; None where there is none.

        Raises:
            InputError: it is of another run, or the ledger is not what it was at its end.
        """
        result = Result.read(self.path)
        if result is None:
            return None
        try:
            contents = read_account(self.ledger_path)[1]
            head = Head.parse(result.ledger_head)
        except OSError as error:
            raise InputError(f"{self.ledger_path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"{self.path / 'result.json'} cannot be relied on: {error}") from None
        if head != contents.head:
            raise InputError(
                f"{self.path / 'result.json'} was edited, or is of another run: the ledger of this "
                "one ends elsewhere; bring back undamaged copies"
            )
        return result

    def secret(self, purpose: str) -> bytes:
        """32 secret bytes for ``purpose``, one of ``_SECRETS``, and for nothing else.

        Drawn once and kept: drawn again after a crash they would hold out people who had been
        trained on before. In a seeded simulation they follow from the seed, so that it repeats in
        another folder too; the seed reveals everything.

        Raises:
            InputError: the run's file of keys is gone or damaged.
        """
        seed = self._seed
        return self._kept(purpose) if seed is None else Randomness(seed).key(purpose)

    @property
    def _seed(self) -> int | None:
        """Return the run's seed; None where it draws from the operating system."""
        seed = self._read_json("private/seed.json", "seed").get("seed", -1)
        return seed if seed >= 0 else None

    def _kept(self, purpose: str) -> bytes:
        kept = self._read_json("private/keys.json", purpose)
        try:
            return bytes.fromhex(kept[purpose])
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.private / 'keys.json'} is gone or damaged: bring back an undamaged copy"
            ) from None

    @property
    def run_id(self) -> str:
        """The run's identity, which is public, and the same after every resume: 128 bits from the
        operating system, whatever the seed."""
        return self._kept("run name").hex()[:32]

    @property
    def run_name(self) -> str:
        """The name of the run for nodes: the beginning of its identity."""
        return self.run_id[:24]

    def keep_lineage(self, names: Iterable[str]) -> None:
        """Note by name which private runs this one is made from.

        Raises:
            InputError: the run goes on, and its base or its rows name fewer than before.
        """
        now = sorted(names)
        before = self._read_json("private/lineage.json", "runs").get("runs", now)
        if gone := sorted(set(before) - set(now)):
            raise InputError(
                f"--resume: this run was begun on what the private run {gone[0]} had made, and "
                "neither base nor rows say so any more: bring back their privacy.json and ledgers"
            )
        self.write_private("lineage.json", {"runs": now})

    def keep_base(self, described: Mapping[str, Any]) -> None:
        """Note which language model is trained, if one is.

        Raises:
            InputError: the run goes on, and its base is not the one that it was begun with.
        """
        now = {
            name: described[name]
            for name in ("path", "digest", "revision", "dtype", "layers", "models")
            if name in described
        }
        if "digest" not in now:
            return
        before = self._read_json("base.json", "digest") or now
        if before["digest"] != now["digest"]:
            raise InputError(
                f"--resume with another base: what is in {now['path']} is not what the run was "
                f"begun with: SHA-256 {now['digest'][:16]}…, was {before['digest'][:16]}…; bring "
                "it back, or begin again with another --out"
            )
        for name in ("models", "dtype", "layers"):
            if before.get(name) != now.get(name):
                raise InputError(
                    f"--resume: the base has {name} {now.get(name)} here and now, and the run was "
                    f"begun with {before.get(name)}: continue it where, and with what, it was "
                    "begun, or begin again with another --out"
                )
        self.write_json("base.json", Disclosure.public(now))

    def keep_start(self, digest: str) -> None:
        """Note the digest of where the run begins.

        Raises:
            InputError: the run goes on, and it is not what it was.
        """
        before = self._read_json("start.json").get("digest", digest)
        if before != digest:
            raise InputError(
                "--resume: what --start names is not what the run was begun with: SHA-256 "
                f"{digest[:16]}…, was {str(before)[:16]}…; bring it back, or begin again with "
                "another --out"
            )
        self.write_json("start.json", Disclosure.public({"digest": digest}))

    def once(self, name: str, release: Callable[[], Released[Value]]) -> Value:
        """A value that is released once in a run and kept in ``released.json``.

        A crash between the release and the file costs one more release when the run is resumed.

        Raises:
            InputError: the file was edited, or is of another run.
        """
        kept = self._read_json("released.json")
        check = kept.pop(CHECK, None)
        if kept and check != check_of(kept, self._keys):
            raise InputError(
                f"{self.path / 'released.json'} was edited, or is of another run; bring back an "
                "undamaged copy, or begin anew with another --out"
            )
        if name not in kept:
            values = Disclosure.read(kept)
            values[name] = release()
            kept = dict(values)
            self.note_head(0)
            values[CHECK] = Public(check_of(kept, self._keys))
            self.write_json("released.json", values)
        return kept[name]

    @property
    def _keys(self) -> dict[str, str]:
        return {name: self._kept(name).hex() for name in _SECRETS}

    def log_private(self, line: Mapping[str, object]) -> None:
        """Append to the log that is not for release."""
        with (self.path / PRIVATE_LOG).open("a", encoding="utf-8") as file:
            file.write(strict_json(line) + "\n")

    def note_head(self, round_: int) -> None:
        """Note in the private log how long the ledger is after a round (0: before the first)."""
        if self._ledger is not None:
            self.log_private({"round": round_, HEAD: str(self._ledger.head)})

    def last_asked(self) -> int:
        """The last round that nodes were asked in, as the private log has it; 0 for none."""
        asked = [line["round"] for line in read_private_log(self.path) if "cohort" in line]
        return asked[-1] if asked else 0

    def add_metrics(self, line: Disclosure) -> None:
        """Append the metrics of a round; trackers send them on."""
        text = json.dumps(disclosed(line), allow_nan=False) + "\n"
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(text)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of all rounds; a line torn by a crash is left out."""
        return read_metrics(self.path)

    def save_checkpoint(self, round_: int, state: Mapping[str, np.ndarray]) -> None:
        """Replace the checkpoint; unless the run is seeded, it is on disk when this returns."""
        head = self._ledger.head if self._ledger else NO_LINES
        (self.path / checkpoints.PLACE).parent.mkdir(exist_ok=True)
        checkpoints.save(self.path, Checkpoint(round_, dict(state), head), flush=self._flush)

    def load_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, or None if there is none; InputError if it is damaged."""
        return checkpoints.load(self.path)

    def rewind_metrics(self, round_: int) -> None:
        """Drop metrics of rounds after ``round_``: they will be run, and written, again."""
        kept = [line for line in self.metrics() if line["round"] <= round_]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept)
        replace_file(self.path / "metrics.jsonl", text.encode())

    def _read_json(self, name: str, *keys: str) -> dict[str, Any]:
        return read_json(self.path / name, *keys)
