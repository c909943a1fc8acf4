"""The ``ray`` runtime: a Grid over Ray actors, on this machine or on a cluster that exists.

Every node lives in one worker, an actor that keeps its users' judgements and features for the whole
run. A round's model is put into the object store once and read from there by all workers; each
answers with one sum over all its sampled users, so what the server adds up grows with the number of
workers, not of users. Waiting is Ray's own: nothing polls.

A worker that dies is started again by Ray, gets its users from the object store once more, and is
asked again: node halves are functions of what they are asked, so no user and no round is lost.
(Without a seed, an answer that never arrived is drawn afresh; nobody has seen the first one.)
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from murmuration.client import store
from murmuration.preference.data.loading import Data
from murmuration.preference.escaping import get_logger
from murmuration.preference.language.machine import without_gpu
from murmuration.sims.runtimes.local import (
    RAISED,
    InProcessGrid,
    Scalar,
    number,
    serve,
)
from murmuration.sims.runtimes.ray_cluster import (
    Workers,
    cluster,
    with_gpus,
    worker_failed,
    workers_of,
)
from murmuration.strategies.protocol.flower_internals import set_task_identity

_WAIT = 1.0  # seconds until the server looks whether its patience is at an end
SILENCE = 15.0  # seconds of waiting for the cluster without a word
_log = get_logger("murmuration")


class RayGrid(InProcessGrid):
    """Nodes 1 … ``nodes``, spread over workers in equal shares of consecutive nodes.

    ``node_config`` of a node is as in ``sims.runtimes.local``. ``judgements`` are everybody's.

    Raises:
        InputError: there is not room for the workers.
        WorkerFailed: a worker could not begin.
    """

    def __init__(
        self,
        ray: Any,
        client_app: ClientApp,
        judgements: Data,
        nodes: int,
        run_config: Mapping[str, Scalar],
        *,
        workers: Workers,
    ) -> None:
        super().__init__()
        self._ray = ray
        self._nodes = range(1, nodes + 1)
        self._pending: dict[str, tuple[Any, Message]] = {}
        shares = min(workers_of(ray, workers), nodes)
        actor = ray.remote(
            num_cpus=workers.cpus,
            num_gpus=workers.gpus,
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )(_Worker)
        users = len(judgements.user_ids)
        self._workers: dict[int, Any] = {}
        self._kept: list[Any] = []  # what a worker that starts again needs
        for index in range(shares):
            mine = [self._nodes[place] for place in store.share(nodes, index, shares)]
            first = store.share(users, mine[0] - 1, nodes).start
            last = store.share(users, mine[-1] - 1, nodes).stop
            part = ray.put(judgements.select(np.arange(first, last)))
            self._kept.append(part)
            settings = dict(run_config)
            # Written down, because Ray prints an error about workers that may start again and begin
            # with references, which might have gone away by then.
            written = ray.cloudpickle.dumps(part)
            worker = actor.remote(
                client_app,
                part=written,
                first=first,
                users=users,
                mine=mine,
                nodes=nodes,
                run_config=settings,
                workers=workers,
            )
            self._workers.update((node, worker) for node in mine)
        # Here, so that what is wrong with a cluster shows before the first question, and once: of
        # what it tries again Ray prints tracebacks.
        begun = [
            worker.process.options(max_task_retries=0).remote()
            for worker in set(self._workers.values())
        ]
        there, missing = ray.wait(begun, num_returns=len(begun), timeout=SILENCE)
        if missing:
            _log.warning(
                "waiting for the cluster: %d of %d workers have begun; others may be using it",
                len(there),
                len(begun),
            )
        try:
            ray.get(begun)
        except ray.exceptions.RayError as error:
            raise worker_failed(error) from error

    def get_node_ids(self) -> Iterable[int]:
        """All node ids."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to the workers; arrays that several of them share travel once."""
        shared: dict[int, Any] = {}
        ids, outgoing = [], list(messages)
        for message in outgoing:
            message_id = number(message)
            arrays = message.content.array_records.get("model")
            if arrays is not None and id(arrays) not in shared:
                shared[id(arrays)] = self._ray.put(arrays)
            rest = RecordDict({k: v for k, v in message.content.items() if v is not arrays})
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            reply = self._workers[node].answer.remote(
                node, kind, message.metadata.group_id, rest, shared.get(id(arrays))
            )
            self._pending[message_id] = (reply, message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        """Replies that are there, after waiting for one for a second at most."""
        asked = {self._pending[i][0]: i for i in message_ids if i in self._pending}
        if not asked:
            return
        self._ray.wait(list(asked), num_returns=1, timeout=_WAIT)
        done, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=0)
        for reply in done:
            _, message = self._pending.pop(asked[reply])
            yield self._read(reply, message)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull every reply."""
        waiting, result = set(self.push_messages(messages)), []
        while waiting:
            for reply in self.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                result.append(reply)
        return result

    def _read(self, reply: Any, message: Message) -> Message:
        try:
            content, raised = self._ray.get(reply)
        except self._ray.exceptions.RayError as error:
            content, raised = None, str(worker_failed(error))
        if content is None:
            return Message(Error(code=RAISED, reason=raised), reply_to=message)
        return Message(content, reply_to=message)


class _Worker:
    """The nodes of one worker; runs in a process of its own.

    ``part`` is a written-down reference to the judgements of consecutive users from ``first`` on,
    out of ``users``.
    """

    def __init__(
        self,
        client_app: ClientApp,
        *,
        part: bytes,
        first: int,
        users: int,
        mine: list[int],
        nodes: int,
        run_config: dict[str, Scalar],
        workers: Workers,
    ) -> None:
        import ray
        import torch
        from ray import cloudpickle

        torch.set_num_threads(workers.cpus)
        if not workers.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what was not asked for is left to others
        set_task_identity()
        self._place = f"worker process {os.getpid()} on {ray.util.get_node_ip_address()}"
        judgements: Data = ray.get(cloudpickle.loads(part))
        self._client_app, self._contexts = client_app, {}
        for node in mine:
            node_config: dict[str, Scalar] = {"partition-id": node - 1, "num-partitions": nodes}
            context = Context(1, node, node_config, RecordDict(), dict(run_config))
            hosted = store.share(users, node - 1, nodes)
            chosen = np.arange(hosted.start - first, hosted.stop - first)
            store.keep(context, judgements.select(chosen))
            self._contexts[node] = context

    def process(self) -> int:
        """The id of this worker's process, once it has started."""
        return os.getpid()

    def answer(
        self, node: int, kind: str, group: str, rest: RecordDict, model: Any
    ) -> tuple[RecordDict | None, str]:
        """The ClientApp's answer, or none and what it raised."""
        content = RecordDict({**rest, **({"model": model} if model is not None else {})})
        message = Message(content, dst_node_id=node, message_type=kind, group_id=group)
        number(message)
        try:
            return self._client_app(message, self._contexts[node]).content, ""
        except Exception as error:
            return None, f"{self._place}: {type(error).__name__}: {error}"


def run_ray(
    run_config: Mapping[str, Scalar],
    judgements: Data,
    *,
    nodes: int,
    workers: Workers,
    server_app: ServerApp,
    client_app: ClientApp,
) -> None:
    """Run a ServerApp over Ray workers; its exceptions pass through.

    With 0 ``nodes`` there is one for each worker.

    Raises:
        InputError: no cluster, or one without room for the workers.
        WorkerFailed: a worker could not begin.
    """
    with cluster() as ray:
        users = len(judgements.user_ids)
        workers = with_gpus(ray, workers, bool(run_config.get("base")))
        nodes = nodes or min(users, workers_of(ray, workers))
        grid = RayGrid(ray, client_app, judgements, nodes, run_config, workers=workers)
        # The workers have them now.
        del judgements
        store.load.cache_clear()
        # Workers fill the GPUs that they have; what the server computes of a model is little.
        with without_gpu() if workers.gpus else nullcontext():
            serve(server_app, grid, run_config)
