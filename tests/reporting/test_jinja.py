"""Templates: whatever is put in is harmless, unless the template itself declares it safe."""

import pytest
from jinja2 import UndefinedError

from murmuration.reporting.jinja import html_templates, joined_lines, markdown_templates

HOSTILE = "<b>`x`</b>\n# title"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own.md").write_text("{{ text }}\n")
    (tmp_path / "declared.md").write_text("{{ text|safe }}\n")
    (tmp_path / "joined.md").write_text("One line\n  {% if more %}\n  and more.\n  {% endif %}\n")
    (tmp_path / "figures.md").write_text("{{ number|count }} {{ text|loud }}")
    return tmp_path


def test_html_is_escaped_whatever_a_template_is_called(folder):
    said = html_templates(folder).get_template("own.md").render(text=HOSTILE)
    assert said == "&lt;b&gt;`x`&lt;/b&gt;\n# title"


def test_in_markdown_a_text_is_one_line_that_starts_nothing(folder):
    said = markdown_templates(folder).get_template("own.md").render(text=HOSTILE)
    assert said == "&lt;b>'x'&lt;/b> # title\n"


@pytest.mark.parametrize("templates", [html_templates, markdown_templates])
def test_what_a_template_declares_safe_stands_as_it_is(folder, templates):
    said = templates(folder).get_template("declared.md").render(text=HOSTILE)
    assert said.rstrip("\n") == HOSTILE


@pytest.mark.parametrize("templates", [html_templates, markdown_templates])
def test_a_value_that_is_missing_is_an_error(folder, templates):
    with pytest.raises(UndefinedError, match="text"):
        templates(folder).get_template("own.md").render()


def test_an_indented_line_goes_on_with_the_one_before(folder):
    template = markdown_templates(folder).get_template("joined.md")
    assert joined_lines(template, more=True) == "One line and more.\n"
    assert joined_lines(template, {"more": False}) == "One line\n"


def test_counts_and_filters_of_ones_own(folder):
    template = html_templates(folder, {"loud": str.upper}).get_template("figures.md")
    assert template.render(number=12345, text="a") == "12,345 A"
