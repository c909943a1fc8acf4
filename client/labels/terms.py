"""The terms on which a node sends randomized labels, and the place of their memory.

A deployed node's owner decides, in its node-config:

    state=PATH              the file that remembers; without it no label is told
    label-epsilon=3.0       the epsilon that is told with; without it no label is told
    label-delta=0.0         the δ that is told with
    label-cap=0             the most labels that a user ever tells; 0: no such limit is asked for
    label-min-epsilon=1.0   lets a request name less than label-epsilon, down to this

The first request fixes the terms of a user's labels for good (``client.labels.memory``). So a
request must name the owner's own numbers, all three: a stranger who asked with ε = 0.001, or for
one label of each user, would make the rest useless for everybody. Labels that were randomized
before they came here have their terms; they are sent only within the owner's.

With a label-epsilon true labels take no part in anything else that leaves the node.

Simulated nodes take the run's terms. With a seed their draws are a function of it and need no
memory; without one the memory is in the run's private folder.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from flwr.app import Context

from murmuration.client.labels.memory import LabelState
from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.randomized_response import LabelPromise


def check_terms(
    promise: LabelPromise, node_config: Mapping[str, object], *, settled: bool = False
) -> None:
    """Check that the owner of a node sends labels with this promise.

    ``settled`` says that the labels were randomized before they came to the node.

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
    try:
        most = float(str(node_config["label-epsilon"]))
        least = float(str(node_config.get("label-min-epsilon", most)))
        delta = float(str(node_config.get("label-delta", 0.0)))
        cap = int(str(node_config.get("label-cap", 0)))
    except ValueError:
        raise InputError(
            "node-config label-epsilon, label-min-epsilon and label-delta must be numbers, and "
            "label-cap a whole one"
        ) from None
    # Turned around, so that no comparison with NaN would allow anything.
    allowed = promise.epsilon <= most and promise.delta <= delta
    lasting = promise.epsilon >= least and promise.delta == delta and promise.cap == cap
    if not (allowed and (settled or lasting)):
        size = f"{most:g}" if least == most else f"{least:g} to {most:g}"
        at_most = f"a cap of {cap} labels" if cap else "no cap"
        raise InputError(
            f"labels asked for with {promise}: this node allows epsilon {size}, delta {delta:g} "
            f"and {at_most}, for good (node-config label-epsilon, label-min-epsilon, label-delta, "
            "label-cap)"
        )


def check_true_labels(node_config: Mapping[str, object]) -> None:
    """Check that sums over true labels may leave a node; InputError if its owner sends only
    randomized ones."""
    if "data" in node_config and "label-epsilon" in node_config:
        raise InputError(
            "this node tells its users' labels randomized only (node-config label-epsilon): it "
            "neither trains nor evaluates on true ones"
        )


def state_for(context: Context) -> LabelState:
    """The label state that a context names."""
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
