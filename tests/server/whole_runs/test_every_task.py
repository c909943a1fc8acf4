"""What holds of runs on a language model whatever its task: nodes, resuming, what does not fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from local_runs import AT_HOME, LORA, run, theta

from murmuration.preference.data.errors import InputError

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**{**LORA, "test": ""})]

TASKS = {
    "reward": {},
    "reward, all layers": {"train": "full", "lora_rank": 0},
    "text": {"task": "text"},
    "sft": {"task": "sft"},
    "policy": {"task": "policy"},
    "policy, labels told at home": {"task": "policy", **AT_HOME},
}
IN_ROUNDS = [name for name in TASKS if "at home" not in name]


@pytest.fixture
def of_task(config, crowd_texts):
    """A function: settings for a task, on the data that it learns from."""

    def make(name, **changes):
        data = {"data": crowd_texts} if name == "text" else {}
        return config.changed(**TASKS[name], **data, **changes)

    return make


@pytest.mark.parametrize("task", TASKS)
def test_nodes_do_not_change_the_trajectory(of_task, task):
    one = of_task(task)
    run(one)
    other = replace(one, out=one.out + "2")
    run(other, nodes=7)
    np.testing.assert_allclose(theta(one), theta(other), atol=1e-4)


@pytest.mark.parametrize("task", IN_ROUNDS)
def test_resuming_gives_what_an_uninterrupted_run_gives(of_task, task, broken_off):
    whole = of_task(task, rounds=4)
    expected = run(whole)
    broken = replace(whole, out=whole.out + "2")
    broken_off(broken, after=2)
    found = run(replace(broken, resume=True))
    np.testing.assert_array_equal(theta(broken), theta(whole))
    for name in ("epsilon", "heldout_accuracy", "heldout_loss", "rounds"):
        assert found[name] == expected[name]


@pytest.mark.parametrize("task", ["reward", "sft", "policy, labels told at home"])
def test_a_node_says_what_is_wrong_before_the_first_round(of_task, task, write_rows, make_rows):
    rows = make_rows([1, 2])
    rows[1]["rejected"] = "save it " * 50
    cohort = {} if "at home" in task else {"cohort": 1}
    with pytest.raises(InputError, match=r"row 2: a response of \d+ tokens does not fit"):
        run(of_task(task, data=write_rows(rows), **cohort))
    assert not Path(of_task(task).out).exists()
