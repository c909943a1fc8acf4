"""The ServerApp: reads the run config, trains over whatever grid it is given."""

import functools
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from murmuration.preference.data.errors import InputError
from murmuration.privacy.figures import share_text
from murmuration.privacy.promise import epsilon_text
from murmuration.server.record.run_files import REFUSED, settings_of
from murmuration.server.run import run_training
from murmuration.server.training import OnMetrics
from murmuration.strategies.config import RunConfig, refuse_seed
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.exchange import UNDECODABLE
from murmuration.strategies.protocol.flower_internals import is_over_network, log
from murmuration.strategies.protocol.users import RegistryError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the run config says; its folder holds the result.

    Raises:
        InputError, RunAborted: as of ``train_over``.
    """
    result = train_over(grid, context)
    log(logging.INFO, "model, ledger and report: %s", result["out"])


def train_over(
    grid: Grid,
    context: Context,
    changes: Mapping[str, object] = MappingProxyType({}),
    on_metrics: OnMetrics | None = None,
) -> dict[str, Any]:
    """Train over ``grid`` with the settings of the run config; the result, as of ``run_training``.

    ``changes`` take the place of the run config's settings; ``on_metrics`` hears each round,
    instead of the log.

    Raises:
        InputError: it would be refused again. Of a deployed run its first word says so to
            `murmuration deploy run`, which hears the text alone.
        RunAborted: nodes failed, or were not there; the run can be resumed.
    """
    try:
        settings = settings_of(context.run_config)
        settings |= {name.replace("_", "-"): value for name, value in changes.items()}
        if not settings.get("out"):
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
            settings["out"] = str(Path.home() / "murmuration-runs" / stamp)
        logging.getLogger("flwr").addFilter(_one_line)
        config = RunConfig.from_run_config(settings)
        if is_over_network(grid):
            decode_each_by_itself()
            refuse_seed(config)
        return run_training(config, grid, on_metrics=on_metrics or _log_rounds(config.rounds))
    except InputError as error:
        if not is_over_network(grid) or isinstance(error.__cause__, RegistryError):
            raise  # who is there may be another matter a minute later
        raise InputError(f"{REFUSED}{error}") from None


def _log_rounds(rounds: int) -> OnMetrics:
    """Logs about ten rounds of so many, from the lines of ``metrics.jsonl``: what is released."""
    accuracy: float | None = None

    def on_metrics(line: Mapping[str, Any]) -> None:
        nonlocal accuracy
        accuracy = line.get("heldout_accuracy", accuracy)  # not measured in every round
        done = line["round"]
        if done not in (1, rounds) and 10 * (done - 1) // rounds == 10 * done // rounds:
            return
        spent = "" if line["epsilon"] is None else f", ε {epsilon_text(line['epsilon'])}"
        measured = "" if accuracy is None else f", held-out accuracy {share_text(accuracy)}"
        log(logging.INFO, "round %d of %d%s%s", done, rounds, spent, measured)

    return on_metrics


def _one_line(record: logging.LogRecord) -> bool:
    """Let through, of what a user can mend, the line that says it, without the trace of our code.

    Nodes of a simulation log here, too; what one of them raises ends the run, which says it again.
    """
    if f"{InputError.__module__}.{InputError.__name__}: " in record.getMessage():
        return False
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, InputError | RunAborted):
        record.msg, record.args, record.exc_info = "error: %s", (str(error),), None
    return True


# Replies are decoded each by itself: what cannot be is its node's loss.
#
# Flower's grid asks the SuperLink for all replies that are there, which forgets them at once, and
# then decodes one after the other: an error in one would lose the others of that moment, so one
# node could take any others out of a round. Here such a reply becomes an empty message that
# answers nothing; its node has not answered.

_NAME = "inflate_object_from_contents"


def decode_each_by_itself() -> None:
    """From now on, in this process; AttributeError if Flower decodes otherwise than is known."""
    from murmuration.strategies.protocol.flower_internals import http_grid

    decode = getattr(http_grid, _NAME)
    if not isinstance(decode, functools.partial):
        setattr(http_grid, _NAME, functools.partial(_decoded, decode))


def _decoded(
    decode: Callable[[str, Mapping[str, bytes]], Message], name: str, contents: Mapping[str, bytes]
) -> Message:
    try:
        message = decode(name, contents)
        if not isinstance(message, Message):
            raise TypeError(f"a {type(message).__name__} in the place of a message")
    except UNDECODABLE as error:
        log(logging.WARNING, "a reply cannot be decoded: %s", type(error).__name__)
        return Message(RecordDict(), dst_node_id=0, message_type="train")
    return message
