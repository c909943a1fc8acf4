"""A node that means harm: in the agent's place, with answers that are not what was asked for.

python -m murmuration.research.stress.rogue_node SOCKET LOG [SECONDS]

It first registers eight users, and a hundred thousand when it is asked again. Each request to work
it answers with the next harm of a fixed list, noted in LOG with its round. One of them takes
SECONDS.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from murmuration.client.agent import unix_socket
from murmuration.client.agent.agent import listening
from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol import messages, plan_query


def _sums(array: np.ndarray) -> RecordDict:
    return messages.sums_reply({"sum": array})


#: Users that it is registered for, and that it claims when it is asked again.
_REGISTERED, _CLAIMED = 8, 100_000

#: Harm by name: from the number of features to an answer, or the text of an error.
HARMS: dict[str, Callable[[int], RecordDict | str]] = {
    "NaN": lambda d: _sums(np.full(d, np.nan)),
    "infinite": lambda d: _sums(np.full(d, np.inf)),
    "zero": lambda d: _sums(np.zeros(d)),
    "huge (1e300)": lambda d: _sums(np.full(d, 1e300)),
    "longer than its clip norm": lambda d: _sums(np.full(d, 1.0)),
    "wrong shape": lambda d: _sums(np.zeros(d + 1)),
    "two dimensions": lambda d: _sums(np.zeros((d, 2))),
    "oversized (48 MB)": lambda d: _sums(np.zeros(6_000_000)),
    "integers": lambda d: _sums(np.zeros(d, dtype=np.int64)),
    "texts": lambda d: _sums(np.array(["a"] * d)),
    "another name": lambda d: messages.sums_reply({"total": np.zeros(d)}),
    "nothing in it": lambda d: RecordDict(),
    "off the grid": lambda d: _sums(np.full(d, 1e-12)),
    "an error that clears the screen": lambda d: "\x1b[2J\x1b[1;31mall is well\r" * 100_000,
    "late": lambda d: _sums(np.zeros(d)),
}


def main(path: Path, log: Path, seconds: float) -> None:
    """Answer requests until the process is ended."""
    harms = list(HARMS)
    turn = asked = 0
    with listening(path) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    kind, data = unix_socket.read_request(connection)
                    content = unix_socket.decoded(data)
                    if kind == "query.registry":
                        claimed = _CLAIMED if asked else _REGISTERED
                        unix_socket.send_answer(connection, _registered(content, claimed))
                        asked += 1
                        continue
                    if kind == plan_query.QUERY:  # it refuses nothing beforehand
                        unix_socket.send_answer(connection, plan_query.reply(""))
                        continue
                    work = messages.read_work(content)
                    name = harms[turn % len(harms)]
                    turn += 1
                    with log.open("a", encoding="utf-8") as file:
                        line = {"round": int(work.number("round")), "harm": name}
                        file.write(json.dumps(line) + "\n")
                    if name == "late":
                        time.sleep(seconds)
                    harm = HARMS[name](len(work.arrays["theta"]))
                    if isinstance(harm, str):
                        unix_socket.send_refusal(connection, harm)
                    else:
                        unix_socket.send_answer(connection, harm)
                except (OSError, ValueError) as error:
                    print(error, file=sys.stderr)


def _registered(content: RecordDict, claimed: int) -> RecordDict:
    salt = bytes(content.config_records["registry"]["salt"])  # type: ignore[arg-type]
    names = [f"somebody who means harm {number}" for number in range(claimed)]
    keys_U = np.array([user_key(name, salt) for name in names], dtype=np.uint64)
    return messages.registry_reply(messages.RegistryEntry(-1, keys_U, None))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3] if len(sys.argv) > 3 else 60))
