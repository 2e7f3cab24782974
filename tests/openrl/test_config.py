"""The configuration: which source wins, and mistakes told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from openrl.config import Config, ConfigInvalid, load
from openrl.wire.limits import Limits


def write(folder: Path, text: str) -> Path:
    file = folder / "openrl.toml"
    file.write_text(text)
    return file


def test_flags_win_over_the_environment_that_over_the_file_that_over_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, 'host = "::1"\nport = 1\nthreads = 1\n[limits]\nrank = 9\nnum_samples = 9\n')
    environment = {"OPENRL_PORT": "2", "OPENRL_THREADS": "2", "OPENRL_LIMITS__RANK": "8", "OTHER": "x"}
    config = load(file, environment, {"threads": 3, "port": None})
    assert (config.host, config.port, config.threads) == ("::1", 2, 3)
    assert (config.limits.rank, config.limits.num_samples) == (8, 9)
    assert config.limits.batch_datums == Limits().batch_datums


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 7\n")
    assert load(None, {"OPENRL_CONFIG": str(file)}, {}).port == 7


def test_without_anything_there_are_defaults() -> None:
    assert load(None, {}, {}) == Config()


def test_models_have_a_path_or_are_aliases(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[models.a]\npath = "/a"\n[models."Q/b"]\nalias_of = "a"\n'), {}, {})
    assert config.models["a"].path == "/a"
    assert config.models["Q/b"].alias_of == "a"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1\n", r"openrl\.toml: prot: is not a known key"),
        ("[limits]\nranks = 1\n", r"limits\.ranks: is not a known key"),
        ("[limits]\nrank = 0\n", r"limits\.rank: .*greater than 0 \(it is 0\)"),
        ("port = 70000\n", "port: .*65535"),
        ("poll_s = 50\n", "poll_s: .*40"),
        ('log_level = "loud"\n', "log_level"),
        ("[models.a]\n", r"models\.a: .*either path or alias_of"),
        ('[models.a]\npath = "x"\nalias_of = "y"\n', "either path or alias_of"),
        ("port = \n", r"openrl\.toml: not TOML"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid, match=complaint) as invalid:
        load(write(tmp_path, text), {}, {})
    assert "\n" not in str(invalid.value)


def test_a_mistake_in_the_environment_is_one_too() -> None:
    with pytest.raises(ConfigInvalid, match="prot: is not a known key"):
        load(None, {"OPENRL_PROT": "1"}, {})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml", {}, {})


def test_nothing_changes_once_it_is_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().port = 3


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("host", False)],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert Config(host=host).is_loopback is loopback
