"""General wordings of the embedded population: everything that does not depend on the topic.

Leads come in three strengths, reasons in two tones and layouts in five lengths: these are what
`population.AXES` measures. All other choices carry no reward. Openers, asides and contrasts are the
same for both sides; a contrast names the *other* side's action, so that an answer's words alone do
not show what it advises.

The wordings themselves are data: `phrases.toml`.
"""

import tomllib
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_name("phrases.toml").read_text(encoding="utf-8"))


def _of(name: str) -> tuple[str, ...]:
    return tuple(_TABLE[name])


SLOTS = {name: tuple(values) for name, values in _TABLE["slots"].items()}
GREETINGS = _of("greetings")
ASKS = _of("asks")
OPENERS = _of("openers")
HEDGED_LEADS = _of("hedged_leads")
PLAIN_LEADS = _of("plain_leads")
FIRM_LEADS = _of("firm_leads")
BECAUSE = _of("because")
REASON_FRAMES = _of("reason_frames")
CONTRASTS = _of("contrasts")
ASIDES = _of("asides")
NEUTRAL_CLOSINGS = _of("neutral_closings")
CAUTIOUS_CLOSINGS = _of("cautious_closings")
DARING_CLOSINGS = _of("daring_closings")
CAUTIOUS_PLAIN_REASONS = _of("cautious_plain_reasons")
DARING_PLAIN_REASONS = _of("daring_plain_reasons")
CAUTIOUS_TECHNICAL_REASONS = _of("cautious_technical_reasons")
DARING_TECHNICAL_REASONS = _of("daring_technical_reasons")
#: What an answer of 1, 2, … 5 sentences consists of, in order: a choice of layouts for each.
LAYOUTS = tuple(tuple(map(tuple, layouts)) for layouts in _TABLE["layouts"])
