"""The generated app directory: what it holds, and that settings survive every kind of text."""

import io
import math
import os
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import flatten_dict, get_fab_config, validate_config
from hypothesis import given
from hypothesis import strategies as st

import murmuration
from murmuration.reporting.jinja import TEMPLATES
from murmuration.sims.runtimes.app_bundle import BUNDLED, write_bundle, write_package


def read_config(directory):
    """Return the run config as Flower reads it from the bundle that it builds."""
    config = get_fab_config(build_fab_from_disk(directory))
    return flatten_dict(config["tool"]["flwr"]["app"]["config"])


def test_our_own_packages_are_copied_and_nothing_else(tmp_path):
    app = write_bundle(tmp_path / "app", {"seed": 0})
    top = Path(murmuration.__file__).parent
    expected = {
        f"murmuration/{file.relative_to(top).as_posix()}": file
        for pattern in BUNDLED
        for file in top.glob(pattern)
    }
    found = {file.relative_to(app).as_posix() for file in app.rglob("*") if file.is_file()}
    assert found == {*expected, "pyproject.toml"}
    assert "murmuration/server/app.py" in found
    rooms = {name.split("/")[1] for name in found if name.count("/") > 1}
    assert rooms.isdisjoint({"alignment", "audits", "cli", "deploy", "tuning"})
    of_research = {name.split("/")[2] for name in found if name.startswith("murmuration/research/")}
    assert of_research == {"__init__.py", "plugin.py", "strategies"}
    for name, file in expected.items():
        assert (app / name).read_bytes() == file.read_bytes()


def test_a_package_for_workers_lacks_nothing(tmp_path):
    top = Path(murmuration.__file__).parent
    wanted = {
        (Path("murmuration") / Path(folder).relative_to(top) / name).as_posix()
        for folder, _, names in os.walk(top, followlinks=True)
        for name in names
        if Path(folder).name != "__pycache__"
    }
    package = write_package(tmp_path / "package")
    written = {file.relative_to(package).as_posix() for file in package.rglob("*")}
    assert wanted <= written
    assert {"murmuration/sims/runtimes/ray_grid.py", "pyproject.toml"} <= written
    assert not any("__pycache__" in name for name in written)


def test_flower_carries_every_template_that_a_report_or_a_card_is_made_of(tmp_path):
    fab = build_fab_from_disk(write_bundle(tmp_path / "app", {}))
    carried = zipfile.ZipFile(io.BytesIO(fab)).namelist()
    templates = {f"murmuration/reporting/templates/{file.name}" for file in TEMPLATES.iterdir()}
    assert templates
    assert templates <= set(carried)


def test_flower_accepts_it_without_warnings_and_is_told_of_no_dependencies(tmp_path):
    app = write_bundle(tmp_path / "app", {}, serverapp="a.b:c", clientapp="d.e:f")
    config = tomllib.loads((app / "pyproject.toml").read_text())
    assert validate_config(config, check_module=False) == (True, [], [])
    assert "dependencies" not in config["project"]
    assert config["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "a.b:c",
        "clientapp": "d.e:f",
    }


def test_another_folder_of_code(tmp_path):
    code = tmp_path / "code with space"
    (code / "server").mkdir(parents=True)
    (code / "server" / "app.py").write_text("app = 1\n")
    (code / "notes.txt").touch()
    app = write_bundle(tmp_path / "app", {}, app_dir=code)
    assert {file.name for file in app.rglob("*") if file.is_file()} == {"app.py", "pyproject.toml"}


@given(
    config=st.dictionaries(
        st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1),
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        max_size=5,
    )
)
def test_every_setting_arrives_as_it_was(tmp_path_factory, config):
    app = write_bundle(tmp_path_factory.mktemp("app"), config, app_dir=tmp_path_factory.mktemp("c"))
    written = tomllib.loads((app / "pyproject.toml").read_text())
    found = written["tool"]["flwr"]["app"]["config"]
    assert found == config  # and 1 is not True:
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in config.items()
    }


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")
def test_text_that_toml_could_trip_over(tmp_path):
    config = {
        "path": '/data dir/it\'s "quoted"/prés\\n ☃\U0001f426\ttab\r\nline\x7f',
        "tiny": 1e-300,
        "infinite": math.inf,
        "flag": True,
    }
    assert (
        read_config(write_bundle(tmp_path / "app", config, app_dir=tmp_path / "no code")) == config
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data", None, "NoneType"),
        ("data", ["a"], "list"),
        ("seed", 2**63, "64 bits"),
        ("data", "\udcff", "Unicode"),
        ("a.b", 1, "nesting"),
    ],
)
def test_a_setting_that_flower_cannot_carry_is_refused_by_name(tmp_path, key, value, said):
    with pytest.raises(ValueError, match=said) as error:
        write_bundle(tmp_path / "app", {key: value})
    assert repr(key) in str(error.value)
    assert not (tmp_path / "app").exists()


def test_a_directory_in_use_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        write_bundle(tmp_path, {})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_bundle_of_another_folder_has_the_pages_templates(tmp_path):
    """Without them a run ends when its model is trained and paid for."""
    ours = write_bundle(tmp_path / "ours", {})
    again = write_bundle(tmp_path / "again", {}, app_dir=ours)
    templates = {file.relative_to(ours) for file in ours.rglob("templates/*")}
    assert templates
    assert templates <= {file.relative_to(again) for file in again.rglob("*")}
