"""Quiet tests, and small judgements to train on.

On one thread, or on as many as MURMURATION_TEST_THREADS says.
"""

import functools
import gc
import json
import os
import re
import shutil
import signal
import sys
import warnings
import zlib
from pathlib import Path

_THREADS = os.environ.get("MURMURATION_TEST_THREADS", "1")
# Before anything is imported that reads them.
for _name, _value in {
    "OMP_NUM_THREADS": _THREADS,
    "MPLBACKEND": "Agg",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_usage_stats_enabled": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "MURMURATION_CACHE": "",  # nothing is kept
}.items():
    os.environ.setdefault(_name, _value)
# Every module is compiled once, and not again in each process that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

from murmuration.preference.linear.examples import PairExamples  # noqa: E402
from murmuration.preference.models import ABSENT, preference_model  # noqa: E402
from murmuration.privacy import extensions  # noqa: E402

torch.set_num_threads(int(_THREADS))
# No test is about lost power.
os.fsync = os.fdatasync = lambda fd: None
# What is imported and collected stays to the end: it is not searched for garbage, again and again.
gc.disable()
# Few examples a day, and many a night. No test is about time: a busy machine would make some fail.
_EXAMPLES = int(os.environ.get("MURMURATION_TEST_EXAMPLES", "20"))
settings.register_profile("patient", deadline=None, max_examples=_EXAMPLES)
settings.load_profile("patient")
# A shell starts background jobs with Ctrl-C ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Tests that take more than a second or so alone, beside those that a mark says to be slow.
SLOW = Path(__file__).with_name("slow.txt")


def pytest_addoption(parser):
    """``--tenth`` runs a tenth of the slow tests beside the others."""
    parser.addoption("--tenth", type=int, choices=range(10), help="a tenth of the slow tests too")


def pytest_report_header(config):
    """Say how to run the same tests again."""
    tenth = config.getoption("--tenth")
    return None if tenth is None else f"slow tests: tenth {tenth} (make test-tenth TENTH={tenth})"


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(config, items):
    """Marks what ``slow.txt`` lists, and which of the slow are in the tenth that is asked for.

    A line about no test is an error where its file is read, or is not there.
    """
    listed = {}
    for line in SLOW.read_text(encoding="utf-8").splitlines():
        name, _, stays = line.partition(" except ")
        if name and not name.startswith("#"):
            listed[name] = set(re.findall(r"\[.*?\](?= |$)", stays))
    found = set()
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if name in listed:
            found |= {name, item.nodeid}
            if f"[{case}" not in listed[name]:
                item.add_marker(pytest.mark.slow)
    for item in items:
        tenth = zlib.crc32(item.nodeid.encode()) % 10
        # What starts processes of a deployment has a command, and a time limit, of its own.
        if tenth == config.getoption("--tenth") and not item.get_closest_marker("deploy"):
            item.add_marker(pytest.mark.tenth)
    if any("::" in arg for arg in config.args):
        return
    read = {item.nodeid.split("::")[0] for item in items}
    named = {*listed, *(name + case for name, stays in listed.items() for case in stays)}
    wrong = sorted(
        name
        for name in named - found
        if name.split("::")[0] in read or not Path(config.rootpath, name.split("::")[0]).exists()
    )
    if wrong:
        raise pytest.UsageError(f"{SLOW.name}: there is no {', '.join(wrong)}")


def pytest_collection_finish():
    """From here on there is garbage to be looked for, in what tests make."""
    _stays()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_runtest_logfinish():
    """Leave out of the search for garbage what tests imported, which stays to the end, too."""
    if len(sys.modules) > _modules + 100:
        _stays()


_modules = 0


def _stays():
    """Leave out of the search for garbage what there is now."""
    global _modules
    gc.collect()
    gc.freeze()
    _modules = len(sys.modules)


CAREFUL = ("Put some aside first.", "Wait and compare prices.", "Keep the old one.", "Save it.")
DARING = ("Buy it today!", "Take the loan, live now.", "Bet on it.", "Spend it all, all of it.")


def rows(counts, seed=0, ties=False):
    """Rows of judgements: ``counts`` of each user, who mostly prefer the careful answer."""
    generator = np.random.default_rng(seed)
    found = []
    for user, count in enumerate(counts):
        for _ in range(count):
            pair = [generator.choice(CAREFUL), generator.choice(DARING)]
            if generator.random() < 0.25:
                pair.reverse()
            row = {"user_id": f"u{user:03}", "prompt": "What now?"}
            row |= {"chosen": str(pair[0]), "rejected": str(pair[1])}
            found.append({**row, "tie": True} if ties else row)
    return found


def ragged(users, seed=0):
    """Numbers of judgements: mostly few, one user with 60."""
    counts = np.random.default_rng(seed).geometric(0.3, size=users)
    counts[users // 2] = 60
    return counts.tolist()


@pytest.fixture(autouse=True)
def unrestricted():
    """What a command says of its process holds for its test alone.

    Without ``monkeypatch``, which would then be undone after the fixtures of every test.
    """
    yield
    extensions._of_process = None


@pytest.fixture(scope="session")
def make_rows():
    """``rows(counts, seed=0, ties=False)``."""
    return rows


@pytest.fixture
def write_rows(tmp_path):
    """A function: write rows to a JSONL file of its own, and give its path."""

    def write(found, name="judgements.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def crowd(tmp_path_factory):
    """A file with the judgements of 50 users."""
    path = tmp_path_factory.mktemp("crowd") / "crowd.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(ragged(50))), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def crowd_test(tmp_path_factory):
    """A file with judgements of 10 other users."""
    path = tmp_path_factory.mktemp("crowd") / "test.jsonl"
    others = [{**row, "user_id": f"test-{row['user_id']}"} for row in rows([4] * 10, seed=7)]
    path.write_text("".join(json.dumps(row) + "\n" for row in others))
    return str(path)


@pytest.fixture
def refreshed(monkeypatch):
    """A function: nodes come and go, and are asked again after so many rounds; 0: they do not."""
    from murmuration.server import training
    from murmuration.strategies.config import RunConfig

    def every(rounds):
        monkeypatch.setattr(RunConfig, "comes_and_goes", rounds > 0)
        monkeypatch.setattr(training, "REFRESH", rounds)

    return every


@pytest.fixture
def few_people(monkeypatch):
    """The embedded population has 100 users, and 30 in each other split."""
    from murmuration.client import store
    from murmuration.sims.population.population import Population

    monkeypatch.setattr(Population, "_user_count", lambda _, split: 100 if split == "train" else 30)
    store.load.cache_clear()  # a process keeps what it read
    yield
    store.load.cache_clear()


@pytest.fixture(scope="session")
def crowd_texts(tmp_path_factory):
    """A file with texts of 50 users: what they chose, one of them long."""
    found = [{"user_id": row["user_id"], "text": row["chosen"]} for row in rows(ragged(50))]
    found[0]["text"] = "Wait and compare prices, keep the old one. " * 12
    path = tmp_path_factory.mktemp("crowd") / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session", params=["top-1", "ranking"])
def crowd_of_four(request, tmp_path_factory):
    """A file with the judgements of 50 users over two to four responses."""
    generator, lines = np.random.default_rng(0), []
    for user, count in enumerate(ragged(50)):
        for _ in range(count):
            careful = [str(text) for text in generator.permutation(CAREFUL)[:2]]
            daring = [str(text) for text in generator.permutation(DARING)[: generator.integers(3)]]
            row = {"user_id": f"u{user:03}", "prompt": "What now?", "responses": careful + daring}
            if request.param == "top-1":
                row["best"] = [0, 1] if generator.random() < 0.2 else int(generator.integers(2))
            else:
                row["ranking"] = [*range(1, len(row["responses"]) + 1)]
            lines.append(json.dumps(row) + "\n")
    path = tmp_path_factory.mktemp("crowd") / "of-four.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def of_four(crowd_of_four):
    """What the judgements of ``crowd_of_four`` are declared to be: settings of a run."""
    kind = "top-1" if '"best"' in Path(crowd_of_four).read_text(encoding="utf-8") else "ranking"
    return {"kind": kind, "responses": 4, "model": "plackett-luce"}


@pytest.fixture(scope="session")
def make_examples():
    """A function: random examples of users with ``counts`` judgements, a fifth of them ties."""

    def make(counts, dimension=5, seed=0, scale=1.0):
        generator = torch.Generator().manual_seed(seed)
        count_U = torch.tensor(counts, dtype=torch.int64)
        x_RD = torch.randn(int(count_U.sum()), dimension, generator=generator) * scale
        tied_R = torch.rand(len(x_RD), generator=generator) < 0.2
        start_U = torch.cat([torch.zeros(1, dtype=torch.int64), count_U.cumsum(0)])
        return PairExamples(x_RD, torch.where(tied_R, 0.5, 1.0), start_U)

    return make


@pytest.fixture(scope="session")
def make_best_of():
    """A function: random judgements over as many as ``width`` + 1 responses.

    A quarter of them is over two. Among the best of several, another quarter are ties.
    """

    def make(counts, width=3, dimension=5, seed=0, kind="top-1"):
        generator = torch.Generator().manual_seed(seed)
        count_U = torch.tensor(counts, dtype=torch.int64)
        judgements = int(count_U.sum())
        x_JWD = torch.randn(judgements, width, dimension, generator=generator)
        y_JW = torch.ones(judgements, width)
        if kind == "top-1":
            y_JW[1::4, 0] = 0.5
        y_JW[::4, 1:] = ABSENT
        x_JWD[::4, 1:] = 0.0
        start_U = torch.cat([torch.zeros(1, dtype=torch.int64), count_U.cumsum(0)])
        rows = x_JWD.reshape(-1, dimension), y_JW.reshape(-1)
        return PairExamples(*rows, start_U, width, kind=kind)

    return make


@pytest.fixture(scope="session")
def oracle():
    """A function: the gradient of the mean BTL log loss over some rows, by autograd in float64."""

    def gradient(examples, theta_D, rows):
        theta = torch.tensor(np.asarray(theta_D), dtype=torch.float64, requires_grad=True)
        logits = examples.x_RD[rows].double() @ theta
        y = examples.y_R[rows].double()
        log = torch.nn.functional.logsigmoid
        loss = -(y * log(logits) + (1 - y) * log(-logits)).mean()
        (found,) = torch.autograd.grad(loss, theta)
        return found

    return gradient


@pytest.fixture(scope="session")
def model_oracle():
    """A function: as ``oracle``, of the mean loss of a model over some judgements."""

    def make(name):
        def gradient(examples, theta_D, judgements):
            model = preference_model(name, examples.kind, examples.width)
            theta = torch.tensor(np.asarray(theta_D), dtype=torch.float64, requires_grad=True)
            x_JWD = examples.x_RD.view(-1, examples.width, examples.dimension)[judgements]
            y_JW = examples.y_R.view(-1, examples.width)[judgements]
            loss = model.loss(x_JWD.double() @ theta, y_JW.double()).mean()
            (found,) = torch.autograd.grad(loss, theta)
            return found

        return gradient

    return make


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    """A function: the folder of a tiny model with random weights: gpt2 (and changes), llama, bert.

    ``gpt2-chat`` has a chat template.
    """
    pytest.importorskip("peft")
    import language_models

    made = {}

    def make(kind, **changes):
        key = (kind, *sorted(changes.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("models") / kind
            made[key] = language_models.SAVED[kind](folder, **changes)
        return made[key]

    return make


_ACCOUNTED: dict[tuple, float] = {}


@pytest.fixture
def quick_runs(monkeypatch):
    """Runs write no plots; privacy is accounted for on a coarser grid, which errs upward, and what
    was accounted for once is not computed again. Nobody else is asked about mixtures."""
    import murmuration.reporting.run_end
    from murmuration.privacy.accounting import accountant, recompute, second_opinion

    exact = accountant.noise_multiplier_for

    def remembered(function):
        name = function.__module__, function.__name__

        def call(*arguments, **more):
            arguments = tuple(a if isinstance(a, float) else tuple(a) for a in arguments)
            key = name, repr(arguments), repr(sorted(more.items()))
            if key not in _ACCOUNTED:
                _ACCOUNTED[key] = function(*arguments, **more)
            return _ACCOUNTED[key]

        return call

    def coarsely(function):
        @functools.wraps(function)
        def call(*events, interval, **more):
            return function(*events, interval=max(interval, 1e-3), **more)

        return call

    for name in ("composed_epsilon", "composition"):
        monkeypatch.setattr(accountant, name, coarsely(getattr(accountant, name)))
    monkeypatch.setattr(recompute, "epsilon", remembered(coarsely(recompute.epsilon)))
    for name in ("epsilon", "noise_multiplier_for"):
        monkeypatch.setattr(accountant, name, remembered(getattr(accountant, name)))
    coarse = functools.partial(accountant.composition, interval=1e-3)
    monkeypatch.setattr(second_opinion, "composition", coarse)
    monkeypatch.setitem(second_opinion.of_run.__kwdefaults__, "most_group", 1)
    monkeypatch.setattr(murmuration.reporting.run_end, "write_report", lambda *_: None)
    yield
    exact.cache_clear()  # of what the coarser grid gave


@pytest.fixture
def config(request, quick_runs, tmp_path):
    """Settings of a small run on the crowd, which ``@pytest.mark.settings`` of the file and of the
    test change.

    ``data`` and ``test`` may be names of fixtures, and ``base`` that of a ``language_model``.
    """
    from murmuration.strategies.config import RunConfig

    settings = {"data": "crowd", "delta": 1e-3, "seed": 3, "out": str(tmp_path / "run")}
    for mark in reversed(list(request.node.iter_markers("settings"))):
        settings |= mark.kwargs
    for name in ("data", "test"):
        if settings.get(name, "").isidentifier():
            settings[name] = request.getfixturevalue(settings[name])
    if settings.get("base"):
        settings["base"] = request.getfixturevalue("language_model")(settings["base"])
    return RunConfig.from_run_config(settings)


@pytest.fixture
def cli(monkeypatch, capsys):
    """A function: the command line in this process; its exit code, stdout and lines of stderr.

    Progress, which a busy machine may show, is not among the lines.
    """
    import murmuration.cli.main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["murmuration", *map(str, arguments)])
        try:
            murmuration.cli.main.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        if code == 0 and "--json" in arguments:
            json.loads(out.splitlines()[-1], parse_constant=pytest.fail)  # NaN is no JSON
        progress = ("uls: ", "nonprivate: ")
        lines = [line for line in err.splitlines() if not line.startswith(progress)]
        bars = ("it/s]", "?it/s]", "s/it]")
        lines = [line for line in lines if line.strip() and not line.endswith(bars)]
        return code, out, lines

    return call


@pytest.fixture(scope="session")
def near_the_reference(language_model, tmp_path_factory):
    """Folders of four policies, whose weights are those of gpt2 with noise."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, folders = language_model("gpt2"), []
    words = AutoTokenizer.from_pretrained(base)
    for number in range(4):
        model = AutoModelForCausalLM.from_pretrained(base)
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        folders.append(tmp_path_factory.mktemp("policies") / f"p{number}")
        model.save_pretrained(folders[-1])
        words.save_pretrained(folders[-1])
    return folders


@pytest.fixture
def four_policies(near_the_reference, tmp_path):
    """Folders of policies near a reference, which a test may change, and their class."""
    from murmuration.research.strategies.choice.lineage import commit

    folders = [shutil.copytree(folder, tmp_path / folder.name) for folder in near_the_reference]
    commit(tmp_path / "class.json", [str(folder) for folder in folders], public=True)
    return folders


@pytest.fixture
def choice_config(four_policies, language_model, crowd, crowd_test, tmp_path):
    from murmuration.research.strategies.choice.settings import ExponentialSettings
    from murmuration.strategies.config import RunConfig

    return RunConfig(
        data=crowd, test=crowd_test, task="policy", strategy="exponential",
        base=language_model("gpt2"), own=ExponentialSettings(policies=str(tmp_path / "class.json")),
        epsilon=1.0, delta=1e-5, seed=3, out=str(tmp_path / "run"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def ray():
    """Ray, with two processors."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    module = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    yield module
    module.shutdown()
