"""What is for the operator only is labelled wherever it is shown, and stands in no JSON."""

import json

import pytest

from murmuration.preference.operator_only import OperatorOnly


def test_the_label_goes_wherever_the_line_does():
    line = OperatorOnly("3 skipped rows")
    for shown in (str(line), f"{line}", "%s" % line, "{}".format(line), " ".join([str(line)])):  # noqa: UP031, UP032
        assert shown == "operator only: 3 skipped rows"


@pytest.mark.parametrize("refuse", [json.dumps, float, "".join, sorted])
def test_json_metrics_and_joined_texts_refuse_it(refuse):
    with pytest.raises(TypeError):
        refuse(
            OperatorOnly("3")
            if refuse in (float, json.dumps)
            else [OperatorOnly("3"), OperatorOnly("4")]
        )
