"""Model cards of results that no run has written."""

from murmuration.privacy.accounting.chained_record import NO_LINES
from murmuration.privacy.accounting.terms import RunTerms, Trust, Unit
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.reporting import model_card as written
from murmuration.reporting.promise import details


def model_card(result):
    """The card of a run that promised what its result says."""
    unit = Unit.USER if result["private"] else Unit.NOBODY
    caveats = frozenset({"simulation, seed known"} if result["seeded"] else ())
    terms = RunTerms(unit=unit, trust=Trust.SERVER, caveats=caveats)
    adjacency = Adjacency(result["adjacency"])
    run = ReleasedRun(terms, adjacency, result["delta"], result["epsilon"], NO_LINES)
    return written.model_card(Disclosure.read(result), details(Promise((run,))))
