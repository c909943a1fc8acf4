"""A ServerApp that wants one node's sum: it asks four for a round under masks, then three again.

A test puts it in the place of ``murmuration/server/app.py`` of an otherwise honest app and submits
that to a real SuperLink. What it found out is in ``found.json`` in its ``out``.
"""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.grid import step_for
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import ProtocolError
from murmuration.server.record.run_files import settings_of
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import Attendance
from murmuration.strategies.protocol.exchange import RoundNotes
from murmuration.strategies.protocol.secure_rounds import Asker, masked_totals
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.protocol.users import Registry

D, CLIP, SECONDS = 33, 0.1, 60.0
FEATURES = json.dumps(HashingFeatures(D).to_config())
PLAN = StatedPlan.of("attack", Adjacency.ZERO_OUT, 1e-6, 5, {PoissonGaussian(0.5, 4.0): 5})

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Two sums of one round, and what became of them."""
    registry = Registry.ask(grid, Randomness(None), features=FEATURES, timeout=SECONDS)
    found: dict[str, object] = {"nodes": len(registry.nodes)}
    everybody = np.arange(len(registry.keys_N))
    said: list[object] = []
    sums = []
    for left_out in (0, 1):
        parameters = {"strategy": "uls", "round": 1, "features": FEATURES, "clip-norm": CLIP}
        parameters |= {"group-size": 500, PARAMETER: PLAN.to_json()}
        model = messages.model_record(np.zeros(D))
        outgoing = [
            messages.outgoing(messages.work_request(model, parameters, asked), "train", node)
            for node, asked in list(registry.by_node(everybody))[left_out:]
        ]
        ask = Asker(grid, SECONDS, RoundNotes(1, said.append, set(), Attendance(), False))
        try:
            totals, nodes = masked_totals(ask, outgoing, {"sum": step_for(CLIP)}, {"sum": (D,)})
            sums.append(totals["sum"])
            found[f"nodes in sum {left_out}"] = len(nodes)
        except ProtocolError as error:
            found["refused"] = str(error)
    if len(sums) == 2:
        found["somebody's sum"] = (sums[0] - sums[1]).tolist()
    found["said"] = [str(line) for line in said]
    Path(str(settings_of(context.run_config)["out"]), "found.json").write_text(json.dumps(found))
