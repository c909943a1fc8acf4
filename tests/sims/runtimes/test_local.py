"""The grid in this process, and that grouping users into nodes does not show in the weights."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from safetensors.numpy import load_file

from murmuration.client.app import app as client_app
from murmuration.server.app import app as server_app
from murmuration.sims.runtimes.local import LocalGrid, run_local
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.exchange import exchange


def echo_app(raise_on=()):
    app = ClientApp()

    @app.query("echo")
    def echo(message: Message, context: Context) -> Message:
        node = context.node_id
        if node in raise_on:
            raise KeyError(f"nothing at {node}")
        context.state["seen"] = ConfigRecord({"count": len(context.state) + 1})
        answer = ConfigRecord(
            {**message.content.config_records["q"], **context.node_config, **context.run_config}
        )
        return Message(RecordDict({"a": answer}), reply_to=message)

    return app


def ask(grid, nodes):
    content = RecordDict({"q": ConfigRecord({"x": 7})})
    return [grid.create_message(content, "query.echo", node, "0") for node in nodes]


def test_every_node_answers_as_in_flower():
    grid = LocalGrid(echo_app(), 3, {"lr": 0.5})
    assert list(grid.get_node_ids()) == [1, 2, 3]
    replies = list(grid.send_and_receive(ask(grid, [3, 1])))
    assert [reply.metadata.src_node_id for reply in replies] == [3, 1]
    answers = [dict(reply.content["a"]) for reply in replies]
    assert answers[0] == {"x": 7, "partition-id": 2, "num-partitions": 3, "lr": 0.5}
    assert answers[1]["partition-id"] == 0


def test_replies_name_the_message_they_answer_and_come_once():
    grid = LocalGrid(echo_app(), 2, {})
    first, second = grid.push_messages(ask(grid, [1, 2]))
    assert first != second
    (reply,) = grid.pull_messages([second, "unknown"])
    assert reply.metadata.reply_to_message_id == second
    assert list(grid.pull_messages([second])) == []
    assert len(list(exchange(grid, ask(grid, [1, 2, 2]), timeout=9))) == 3


def test_a_node_that_raises_is_an_error_reply():
    grid = LocalGrid(echo_app(raise_on={2}), 3, {})
    replies = {r.metadata.src_node_id: r for r in grid.send_and_receive(ask(grid, [1, 2, 3]))}
    assert [replies[node].has_error() for node in (1, 2, 3)] == [False, True, False]
    assert "KeyError" in replies[2].error.reason
    assert "nothing at 2" in replies[2].error.reason


def test_interrupts_pass_through():
    app = ClientApp()

    @app.query("echo")
    def echo(message: Message, context: Context) -> Message:
        raise KeyboardInterrupt

    grid = LocalGrid(app, 1, {})
    with pytest.raises(KeyboardInterrupt):
        grid.send_and_receive(ask(grid, [1]))


def test_nodes_keep_their_own_state():
    grid = LocalGrid(echo_app(), 2, {})
    grid.send_and_receive(ask(grid, [1, 1]))
    assert "seen" in grid._contexts[1].state
    assert "seen" not in grid._contexts[2].state


def test_run_local_hands_over_the_run_config_and_errors():
    seen = []
    app = ServerApp()

    @app.main()
    def main(grid, context):
        seen.append((dict(context.run_config), len(list(grid.get_node_ids()))))
        raise ValueError("bad rows")

    with pytest.raises(ValueError, match="bad rows"):
        run_local({"rounds": 3}, nodes=4, server_app=app, client_app=echo_app())
    assert seen == [({"rounds": 3}, 4)]


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("strategy", ["uls", "nonprivate"])
def test_grouping_of_users_does_not_show(tmp_path, crowd, strategy):
    """One node, and 1, 7, 50 or 500 users on each, give the same weights from the same seed."""
    found = {}
    for nodes in (1, 50, 8):  # all users; 1 on each; 7 or fewer on each
        out = tmp_path / str(nodes)
        config = RunConfig(
            data=crowd, strategy=strategy, delta=1e-3, rounds=5, cohort=15, seed=2, out=str(out),
            group_size=4, epsilon=0.5,
        )  # fmt: skip
        run_local(config.to_run_config(), nodes=nodes, server_app=server_app, client_app=client_app)
        found[nodes] = load_file(out / "model" / "model.safetensors")["theta_D"]
    assert np.linalg.norm(found[1]) > 0.01
    for theta_D in found.values():
        np.testing.assert_allclose(theta_D, found[1], rtol=0, atol=1e-6)
