"""On what terms a node tells randomized labels, and where it remembers them.

A deployed node's owner decides, in its node-config:

    state=PATH              the file that remembers; without it no label is told
    label-epsilon=3.0       the most that may be asked for; without it no label is told
    label-level=user        the level that this epsilon is of (default user)
    label-delta=0.0         the most δ, at user level

With a label-epsilon true labels take no part in anything else that leaves the node.

Simulated nodes tell on whatever terms the run has. With a seed their coins are a function of it and
nothing needs to be remembered; without one they remember in the run's private folder.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flwr.app import Context

from client.label_state import LabelState
from preference.judgements import InputError
from privacy.randomized_response import LabelPromise


def check_terms(promise: LabelPromise, node_config: Mapping[str, object]) -> None:
    """Whether the owner of a node tells labels with this promise.

    Raises:
        InputError: they do not; says which node-config decides.
    """
    if "data" not in node_config:
        return
    if "state" not in node_config or "label-epsilon" not in node_config:
        raise InputError(
            "this node tells no labels: its owner must allow it with node-config state=FILE and "
            "label-epsilon=MOST"
        )
    level = str(node_config.get("label-level", "user"))
    try:
        most = float(str(node_config["label-epsilon"]))
        most_delta = float(str(node_config.get("label-delta", 0.0)))
    except ValueError:
        raise InputError("node-config label-epsilon and label-delta must be numbers") from None
    # Turned around, so that no comparison with NaN would allow anything.
    if not (promise.level == level and promise.epsilon <= most and promise.delta <= most_delta):
        raise InputError(
            f"labels asked for with {promise}: this node allows {level} level, epsilon up to "
            f"{most:g} and delta up to {most_delta:g} (node-config label-level, label-epsilon, "
            "label-delta)"
        )


def check_true_labels(node_config: Mapping[str, object]) -> None:
    """Whether sums over true labels may leave a node; InputError if its owner tells them randomized
    only.
    """
    if "data" in node_config and "label-epsilon" in node_config:
        raise InputError(
            "this node tells its users' labels randomized only (node-config label-epsilon): it "
            "neither trains nor evaluates on true ones"
        )


def state_for(context: Context) -> LabelState:
    """Where the node that a context describes remembers what was told."""
    if "data" in context.node_config:
        return LabelState(Path(str(context.node_config["state"])))
    place = f"{context.node_config['partition-id']}-of-{context.node_config['num-partitions']}"
    out, seed = str(context.run_config.get("out", "")), int(context.run_config.get("seed", -1))
    if seed >= 0:
        return LabelState(None)
    if not out:
        config = context.run_config
        return _in_this_process(str(config.get("data", "")), str(config.get("columns", "")), place)
    return LabelState(Path(out) / "private" / "labels" / f"{place}.state")


@cache
def _in_this_process(_data: str, _columns: str, _place: str) -> LabelState:
    """One memory for the same users: a user "0" of other data is somebody else."""
    return LabelState(None)
