"""The ``local`` runtime: a Grid in this process. The same ServerApp and ClientApp, no daemons.

Nodes answer when their reply is pulled, one after the other; the tensor code inside a node already
uses every core. A node that raises becomes an error reply, as in Flower, so the server sees the
same faults everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from murmuration.strategies.protocol.flower_internals import (
    Run,
    set_message_id,
    set_task_identity,
)

Scalar = bool | int | float | str

RAISED = 2  # Flower's code for an exception in the ClientApp


class InProcessGrid(Grid):
    """A grid whose ServerApp runs in the process that made it: one run, messages."""

    def __init__(self) -> None:
        self._run = Run.create_empty(run_id=1)
        set_task_identity()

    def set_run(self, run: Run) -> None:
        """Set the run's description."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run's description."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(
            content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl
        )


class LocalGrid(InProcessGrid):
    """Nodes 1 … ``nodes`` in this process, each with its own context.

    ``node_config`` of node i is {"partition-id": i − 1, "num-partitions": nodes}, as in Flower's
    simulation, or the i-th of ``node_configs``: what owners of deployed nodes start these with.
    """

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        run_config: Mapping[str, Scalar],
        node_configs: Sequence[Mapping[str, Scalar]] | None = None,
    ) -> None:
        if node_configs is None:
            node_configs = [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]
        super().__init__()
        self._client_app = client_app
        self._contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=dict(own),
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for node, own in zip(range(1, nodes + 1), node_configs, strict=True)
        }
        self._pending: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        """All node ids."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Accept messages; they are worked on when their replies are pulled."""
        ids = []
        for message in messages:
            ids.append(number(message))
            self._pending[ids[-1]] = message
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        """Compute and yield the reply to each of the messages."""
        for message_id in message_ids:
            message = self._pending.pop(message_id, None)
            if message is not None:
                yield self._answer(message)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull every reply."""
        return list(self.pull_messages(self.push_messages(messages)))

    def _answer(self, message: Message) -> Message:
        try:
            return self._client_app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(code=RAISED, reason=reason), reply_to=message)


def number(message: Message) -> str:
    """Give a message an id, which Flower's own grid does when it is sent; the id."""
    message_id = str(uuid4())
    set_message_id(message, message_id)
    return message_id


def serve(server_app: ServerApp, grid: Grid, run_config: Mapping[str, Scalar]) -> None:
    """Run a ServerApp over a grid in this process; its exceptions pass through."""
    context = Context(
        run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=dict(run_config)
    )
    server_app(grid, context)


def run_local(
    run_config: Mapping[str, Scalar], *, nodes: int, server_app: ServerApp, client_app: ClientApp
) -> None:
    """Run ``server_app`` over ``nodes`` nodes in this process; its exceptions pass through.

    Each runs ``client_app`` with ``run_config``, and is told its share as in Flower's simulation.
    """
    serve(server_app, LocalGrid(client_app, nodes, run_config), run_config)
