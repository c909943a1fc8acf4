"""Results that no run has written, their model cards, and the elements of their pages."""

from html.parser import HTMLParser

from murmuration.privacy.accounting.chained_record import NO_LINES
from murmuration.privacy.accounting.terms import RunTerms, Trust, Unit
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.reporting import model_card as written
from murmuration.reporting.promise import details

RESULT = {
    "task": "reward",
    "model": "btl",
    "strategy": "uls",
    "adjacency": "add-remove",
    "epsilon": 2.9914,
    "epsilon_target": 3.0,
    "epsilon_against_server": None,
    "attack": {
        "tpr_at_1_percent_fpr": 0.2,
        "tpr_at_0_1_percent_fpr": 0.02,
        "gdp_mu": 0.7,
    },
    "second_opinion": None,
    "ledger_head": "none",
    "run": "0" * 32,
    "promise": {"statement": "", "caveats": [], "runs": [], "trust": []},
    "theorem": {
        "unit": "one clipped vector of each user",
        "participation": "users, by Poisson sampling",
        "mechanism": "Gaussian noise",
        "says": "A noisy sum is private.",
        "source": "a paper",
    },
    "gradients": 1e5,
    "bytes_per_user": 1e4,
    "weights": "",
    "choice": None,
    "outcome": {},
    "policy": {},
    "baselines": None,
    "heldout_loss": None,
    "heldout_perplexity": None,
    "heldout_loss_noise": None,
    "delta": 1e-5,
    "noise_multiplier": 1.31724,
    "clip_norm": 0.1,
    "group_size": 16,
    "rounds": 200,
    "rounds_planned": 200,
    "users": 2717,
    "cohort": 540,
    "dimension": 1025,
    "learning_rate": 0.91372,
    "heldout_accuracy": 0.743123,
    "heldout_accuracy_by_user": 0.738712,
    "heldout_users": 330,
    "heldout_error": 0.0242,
    "heldout_chance": 0.5,
    "heldout_noise": None,
    "heldout_epsilon": None,
    "accuracy_over_users": None,
    "test": "",
    "test_users": None,
    "users_per_second": 43219.4,
    "seconds_training": 2.49812,
    "out": "/home/ada/runs/r",
    "private": True,
    "seeded": False,
    "one_user_per_row": False,
    "proven": True,
    "noise": None,
    "noise_parties": None,
    "secure_aggregation": False,
    "user_isolation": None,
    "stopped": None,
    "warnings": ["The number of users was taken from the registry."],
    "versions": {},
    "features": {
        "kind": "hashing",
        "dimension": 1025,
        "ngrams": 2,
        "length_weight": 0.3,
        "length": "bounded",
    },
    "test_is_public": True,
}
NONPRIVATE = {
    "strategy": "nonprivate",
    "epsilon": None,
    "epsilon_target": None,
    "noise_multiplier": 0.0,
    "attack": None,
    "clip_norm": None,
    "private": False,
    "warnings": ["No privacy: this is the non-private twin, for comparison only."],
}


def result_of_a_run(private=True, **changes):
    """Return a result as a finished run would write it."""
    return {**RESULT, **({} if private else NONPRIVATE), **changes}


def model_card(result):
    """The card of a run that promised what its result says."""
    unit = Unit.USER if result["private"] else Unit.NOBODY
    caveats = frozenset({"simulation, seed known"} if result["seeded"] else ())
    terms = RunTerms(unit=unit, trust=Trust.SERVER, caveats=caveats)
    adjacency = Adjacency(result["adjacency"])
    run = ReleasedRun(
        terms=terms,
        adjacency=adjacency,
        delta=result["delta"],
        epsilon=result["epsilon"],
        head=NO_LINES,
    )
    return written.model_card(result, details(Promise((run,))))


class Parsed(HTMLParser):
    """The elements of a page, each of which must end, with their attributes, and its texts."""

    VOID = frozenset({"meta", "br", "img", "source"})

    def __init__(self, html):
        super().__init__()
        self.found, self.texts, self.open = [], [], []
        self.feed(html)
        self.close()

    @property
    def tags(self):
        return [tag for tag, _ in self.found]

    @property
    def attributes(self):
        return [pair for _, attributes in self.found for pair in attributes.items()]

    @property
    def links(self):
        return [value for name, value in self.attributes if name in ("src", "srcset", "href")]

    @property
    def text(self):
        return "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)
