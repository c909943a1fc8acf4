"""A node that reads its data itself: everything its answers need, from the context of its app.

Only the owner of a file learns what is wrong with it: the message may quote a cell. A deployed node
writes it to its own log, and the server learns only that there is no data. The same holds for later
errors: the server learns why its request or the owner's terms refuse it, and nothing that depends
on a user's data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from flwr.app import ConfigRecord, Context

from murmuration.client import secure
from murmuration.client.answers import Host
from murmuration.client.labels.terms import state_for
from murmuration.client.store import UserStore, source_for, store_for
from murmuration.preference.data.errors import InputError
from murmuration.preference.escaping import get_logger
from murmuration.strategies.protocol.records import config_of

_log = get_logger("murmuration")
_RECORD = "secure"


def host_for(context: Context) -> Host:
    """The host that a context describes, in a simulation or in a deployment without an agent."""
    return Host(
        store=cache(lambda: _store(context)),
        labels=lambda: state_for(context),
        source=source_for(context),
        terms=context.node_config,
        memory=_memory(context),
    )


def _store(context: Context) -> UserStore:
    if "data" not in context.node_config:
        return store_for(context)
    try:
        return store_for(context)
    except Exception as error:  # Flower sends any exception's text to the server
        _log.error("The data of this node cannot be read: %s", error)
    raise InputError("the data of this node cannot be read; see its own log")


@contextmanager
def client_config(context: Context) -> Iterator[None]:
    """Flower sends any exception's text to the server: of a deployed node only refusals.

    Raises:
        ValueError: a request or a run that is refused, as it was raised.
        RuntimeError: anything else went wrong; the node's own log says what.
    """
    try:
        yield
        return
    except ValueError:
        raise
    except Exception:
        if "data" not in context.node_config:
            raise
        _log.exception("This node cannot answer")
    raise RuntimeError("this node could not answer; see its own log")


def _memory(context: Context) -> secure.Memory:
    """The node's memory between messages, which Flower carries from one to the next."""
    if _RECORD not in context.state:
        context.state[_RECORD] = ConfigRecord()
    return config_of(context.state, _RECORD)  # type: ignore[return-value]
