"""The ServerApp beside it: it asks for more than the owner allows, and last for what they allow."""

import json
import time

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

SALT, FEATURES = b"others", HashingFeatures()
#: A plan of one round with plenty of noise, which the owner takes the server's word for.
PLAN = StatedPlan.of("others", Adjacency.ZERO_OUT, 1e-6, 1, {PoissonGaussian(1.0, 10.0): 1})

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Print what came of each request to the first node."""
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(1.0)
    described = json.dumps(FEATURES.to_config())

    def ask(kind: str, content: RecordDict) -> RecordDict:
        content = RecordDict({**content, "kind": ConfigRecord({"kind": kind})})
        message = Message(content, dst_node_id=nodes[0], message_type="query")
        (reply,) = grid.send_and_receive([message], timeout=120)
        return reply.content

    def say(what: str, answer: RecordDict) -> None:
        if "nothing" in answer:
            print(f"{what}: nothing. {answer['nothing']['why']}")
        else:
            print(f"{what}: GOT IT, {[*answer]}")

    say("the owner's file", ask("file", RecordDict()))
    say("all rows", ask("query.rows", RecordDict()))
    names = messages.read_registry(ask("query.registry", messages.registry_request(
        SALT, False, described
    ))).keys_U  # fmt: skip
    model = messages.model_record(np.zeros(FEATURES.dimension, dtype=np.float32))

    def work(**changes: object) -> RecordDict:
        parameters = {
            "strategy": "uls", "round": 1, "features": described, "clip-norm": 0.1,
            "group-size": 16, PARAMETER: PLAN.to_json(), **changes,
        }  # fmt: skip
        return messages.work_request(model, parameters, messages.UserSelection(SALT, names))

    say("a sum that is not clipped", ask("train", work(**{"clip-norm": 1e6})))
    say("a sum that nobody accounts for", ask("train", work(**{PARAMETER: ""})))
    say("an exact accuracy", ask("evaluate", work()))
    say("a sum as the policy allows it", ask("train", work()))
