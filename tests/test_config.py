import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from amas_code.catalog import ollama_models
from amas_code.config import Settings, load
from amas_code.keys import Keyring, provider_name
from amas_code.places import home_directory, ours
from amas_code.yamlfile import ConfigError, read, remember
from tests.server import Server, say

NO_TERMINAL = "(start with --trust to use them)"


def never(what: str) -> bool:
    raise AssertionError(f"asked: {what}")


def yes(what: str) -> bool:
    return True


def no(what: str) -> bool:
    return False


class Setup:
    """A home and a project, with settings to write into them."""

    def __init__(self, directory: Path):
        self.home, self.root = directory / "home", directory / "project"
        self.user = self.home / ".config/amas/config.yaml"
        self.keys = self.home / ".config/amas/keys.yaml"
        self.project = self.root / ".amas/config.yaml"
        for file in (self.user, self.project):
            file.parent.mkdir(parents=True)

    def load(self, options: dict | None = None, trust=yes, **env: str):
        return load(self.root, options or {}, trust, {"HOME": str(self.home), **env})

    def settings(self, options: dict | None = None, **env: str) -> Settings:
        return self.load(options, **env)[0]

    def keyring(self, options: dict | None = None, **env: str) -> Keyring:
        return self.load(options, **env)[1]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


# Layers


def test_each_layer_of_settings_overrides_the_one_before(setup: Setup) -> None:
    assert setup.settings().max_context_tokens == 128_000
    setup.user.write_text("max_context_tokens: 1\nstream: false\n")
    assert setup.settings().max_context_tokens == 1
    setup.project.write_text("max_context_tokens: 2\n")
    assert setup.settings().max_context_tokens == 2
    env = {"AMAS_MAX_CONTEXT_TOKENS": "3"}
    assert setup.settings(**env).max_context_tokens == 3
    assert setup.settings({"max_context_tokens": 4}, **env).max_context_tokens == 4
    assert setup.settings().stream is False


def test_the_user_file_lies_where_xdg_says(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "xdg/amas").mkdir(parents=True)
    (tmp_path / "xdg/amas/config.yaml").write_text("model: openai/x\n")
    assert setup.settings(XDG_CONFIG_HOME=str(tmp_path / "xdg")).model == "openai/x"
    assert setup.settings(XDG_CONFIG_HOME="relative").model == ""


def test_every_setting_of_the_plan_can_be_set(setup: Setup) -> None:
    setup.user.write_text(
        "model: openai/a\nfallback_model: openai/b\nauto_accept: true\nmax_context_tokens: 9\n"
        "checkpoint_on_edit: false\nstream: no\nignore: ['*.log', build/]\n"
        "api_key: k\napi_base: http://127.0.0.1:1/v1/\n"
    )
    settings, keyring, warnings = setup.load()
    assert warnings == []
    assert (settings.model, settings.fallback_model) == ("openai/a", "openai/b")
    assert (settings.mode, settings.max_context_tokens) == ("auto-edit", 9)
    assert (settings.checkpoint_on_edit, settings.stream) == (False, False)
    assert settings.ignore == ["*.log", "build/"]
    assert keyring.key_for("openai/a") == "k"
    assert keyring.base_for("openai/a") == "http://127.0.0.1:1/v1"


def test_every_setting_can_come_from_the_environment(setup: Setup) -> None:
    settings = setup.settings(
        AMAS_MODEL="openai/a",
        AMAS_MODE="plan",
        AMAS_ALLOW="pytest -q\nmake test\n",
        AMAS_MAX_TURNS="7",
        AMAS_MAX_COST="0.5",
        AMAS_MAX_TIME="60",
        AMAS_STREAM="off",
    )
    assert (settings.model, settings.mode) == ("openai/a", "plan")
    assert settings.allow == ["pytest -q", "make test"]
    assert (settings.max_turns, settings.max_cost, settings.max_time) == (7, 0.5, 60.0)
    assert settings.stream is False


def test_auto_accept_turns_edits_loose_but_never_loosens_plan_mode(setup: Setup) -> None:
    setup.user.write_text("mode: plan\n")
    assert setup.settings(AMAS_AUTO_ACCEPT="false").mode == "plan"
    assert setup.settings(AMAS_AUTO_ACCEPT="true").mode == "auto-edit"
    setup.user.write_text("auto_accept: true\nmode: plan\n")
    assert setup.settings().mode == "plan"
    setup.user.write_text("mode: auto-edit\n")
    assert setup.settings(AMAS_AUTO_ACCEPT="false").mode == "ask"


def test_a_name_without_a_value_sets_nothing(setup: Setup) -> None:
    setup.user.write_text("model:\nignore:\nstream:\n")
    settings = setup.settings()
    assert (settings.model, settings.ignore, settings.stream) == ("", [], True)


def test_an_unknown_setting_warns_with_the_nearest_name(setup: Setup) -> None:
    setup.user.write_text("fallback_modle: openai/x\nzzzz: 1\n")
    warnings = setup.load()[2]
    assert f"{setup.user}: there is no setting fallback_modle; did you mean fallback_model?" in (
        warnings
    )
    assert f"{setup.user}: there is no setting zzzz" in warnings


# What is wrong is named, and nothing is guessed


@pytest.mark.parametrize(
    "text, reason",
    [
        ("model: [a\n", "line 2: not valid YAML"),
        ("a: 1\n b: 2\n", "line 2: not valid YAML"),
        ("just text\n", "expected lines of `name: value`"),
        ("- a\n", "expected lines of `name: value`"),
        ("model: 2020-99-99\n", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("model: 5\n", "model: expected text, found 5"),
        ("max_turns: many\n", "max_turns: expected a whole number, 0 or more, found 'many'"),
        ("max_turns: 2.5\n", "max_turns: expected a whole number"),
        ("max_turns: -1\n", "max_turns: expected a whole number"),
        ("max_turns: true\n", "max_turns: expected a whole number"),
        ("max_turns: .inf\n", "max_turns: expected a whole number"),
        ("max_cost: .nan\n", "max_cost: expected a number"),
        ("stream: maybe\n", "stream: expected true or false, found 'maybe'"),
        ("ignore: {a: b}\n", "ignore: expected a list of texts"),
        ("allow: [1]\n", "allow: expected a list of texts"),
        ("mode: yolo\n", "mode: there is no 'yolo'; choose from ask, auto-edit, plan"),
    ],
)
def test_a_bad_settings_file_is_named_with_the_reason_and_kept(
    setup: Setup, text: str, reason: str
) -> None:
    setup.user.write_text(text)
    with pytest.raises(ConfigError) as error:
        setup.load()
    assert reason in str(error.value)
    assert str(setup.user) in str(error.value) or "mode" in reason
    assert setup.user.read_text() == text


def test_a_settings_file_that_is_no_text_is_named(setup: Setup) -> None:
    setup.user.write_bytes(b"model: \xff\xfe\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        setup.load()
    setup.user.unlink()
    setup.user.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        setup.load()


def test_a_wrong_key_is_never_shown(setup: Setup) -> None:
    setup.user.write_text("api_key: 123456789\n")
    with pytest.raises(ConfigError) as error:
        setup.load()
    assert "123456789" not in str(error.value)


def test_a_home_that_is_no_directory_is_a_home_without_settings(tmp_path: Path) -> None:
    settings, _, warnings = load(tmp_path, {}, never, {"HOME": os.devnull})
    assert settings == Settings()
    assert warnings == []


def test_there_is_a_home_even_without_the_variable() -> None:
    assert home_directory({}).is_absolute()
    assert ours({"HOME": "relative"}).config.is_absolute()


# Keys, and who may see them


def test_a_keys_file_that_others_can_read_is_refused(setup: Setup) -> None:
    setup.keys.write_text("OPENAI_API_KEY: k\n")
    setup.keys.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        setup.load()
    setup.keys.chmod(0o600)
    assert setup.keyring().key_for("openai/x") == "k"
    assert setup.keyring(OPENAI_API_KEY="from-env").key_for("openai/x") == "from-env"


def test_a_key_without_text_is_refused_or_passed_over(setup: Setup) -> None:
    setup.keys.touch(mode=0o600)
    setup.keys.write_text("OPENAI_API_KEY: 123\n")
    with pytest.raises(ConfigError, match="put quotes around it"):
        setup.load()
    setup.keys.write_text("OPENAI_API_KEY:\n")
    assert setup.keyring().key_for("openai/x") is None


@pytest.mark.parametrize(
    "model, provider",
    [
        ("openai/gpt-5", "openai"),
        ("gpt-5", "openai"),
        ("claude-sonnet-5", "anthropic"),
        ("openrouter/openai/gpt-5", "openrouter"),
        ("ollama/qwen3", "ollama_chat"),
        ("ollama_chat/qwen3", "ollama_chat"),
    ],
)
def test_a_model_belongs_to_one_provider(model: str, provider: str) -> None:
    assert provider_name(model) == provider


def test_a_key_set_with_one_provider_s_model_goes_to_no_other(setup: Setup) -> None:
    setup.user.write_text("model: openai/a\napi_key: ours\napi_base: http://127.0.0.1:1\n")
    for env in ({}, {"AMAS_MODEL": "anthropic/b", "AMAS_FALLBACK_MODEL": "groq/c"}):
        keyring = setup.keyring(ANTHROPIC_API_KEY="theirs", **env)
        assert keyring.key_for("openai/a") == "ours"
        assert keyring.base_for("gpt-5") == "http://127.0.0.1:1"
        assert keyring.key_for("anthropic/b") == "theirs"
        for other in ("anthropic/b", "groq/c", "openrouter/openai/a", "text-completion-openai/a"):
            assert keyring.base_for(other) is None
            assert keyring.key_for(other) != "ours"


def test_a_key_and_an_address_of_different_providers_stay_apart(setup: Setup) -> None:
    setup.user.write_text("model: openai/a\napi_base: http://127.0.0.1:1\n")
    keyring = setup.keyring(AMAS_MODEL="anthropic/b", AMAS_API_KEY="theirs")
    assert (keyring.key_for("anthropic/b"), keyring.base_for("anthropic/b")) == ("theirs", None)
    assert (keyring.key_for("openai/a"), keyring.base_for("openai/a")) == (
        None,
        "http://127.0.0.1:1",
    )


def test_a_key_without_a_model_is_for_the_first_model_that_is_asked(setup: Setup) -> None:
    keyring = setup.keyring({"model": "openai/a"}, AMAS_API_KEY="k")
    keyring.bind("openai/a")
    assert keyring.key_for("openai/b") == "k"
    assert keyring.key_for("anthropic/c") is None


def test_an_address_given_for_ollama_serves_both_of_its_names(setup: Setup) -> None:
    setup.user.write_text("model: ollama/qwen3\napi_base: http://box:11434/\n")
    assert setup.keyring().base_for("ollama_chat/qwen3") == "http://box:11434"


@pytest.mark.parametrize(
    "given, url",
    [
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("http://box", "http://box:80"),
        ("https://box/ollama/", "https://box:443/ollama"),
        ("[::1]:99", "http://[::1]:99"),
        ("box:noport", None),
        ("", None),
    ],
)
def test_ollama_host_means_what_ollama_takes_it_for(
    setup: Setup, given: str, url: str | None
) -> None:
    assert setup.keyring(OLLAMA_HOST=given).base_for("ollama/qwen3") == url
    assert setup.keyring(OLLAMA_HOST=given).base_for("openai/x") is None


def test_the_models_of_a_local_ollama_are_found(setup: Setup) -> None:
    with Server(models=("qwen3", "gemma")) as server:
        for env in ({"OLLAMA_HOST": server.url}, {"AMAS_API_BASE": server.url}):
            found = ollama_models(setup.keyring(**env))
            assert found == ["ollama_chat/qwen3", "ollama_chat/gemma"]
    assert ollama_models(setup.keyring(OLLAMA_HOST=server.url)) == []


# A project's own settings


def test_a_project_may_set_harmless_things_unasked(setup: Setup) -> None:
    setup.project.write_text("max_context_tokens: 5\nstream: false\nignore: [dist]\n")
    settings, _, warnings = setup.load(trust=never)
    assert (settings.max_context_tokens, settings.stream, settings.ignore) == (5, False, ["dist"])
    assert warnings == []


@pytest.mark.parametrize(
    "line",
    [
        "api_base: http://127.0.0.1:1",
        "auto_accept: true",
        "mode: auto-edit",
        "allow: [rm -rf /]",
        "model: openai/evil",
        "checkpoint_on_edit: false",
    ],
)
def test_a_project_s_own_settings_count_only_once_trusted(setup: Setup, line: str) -> None:
    setup.project.write_text(f"{line}\nstream: false\n")
    settings, keyring, warnings = setup.load(trust=no)
    assert settings == Settings(stream=False)
    assert keyring.given == {}
    name = line.partition(":")[0]
    assert warnings == [f"{setup.project}: not trusted, so left out: {name} {NO_TERMINAL}"]
    assert setup.settings() != settings  # trusted now
    assert setup.load(trust=never)[0] != settings  # and remembered
    setup.project.write_text(f"{line}\nstream: true\n")
    with pytest.raises(AssertionError, match="asked"):
        setup.load(trust=never)


def test_the_question_of_trust_shows_what_would_count(setup: Setup) -> None:
    setup.project.write_text("api_base: http://evil.example\nmode: auto-edit\n")
    with pytest.raises(
        AssertionError, match="api_base: 'http://evil.example'\n  mode: 'auto-edit'"
    ):
        setup.load(trust=never)


def test_a_key_never_comes_from_a_project(setup: Setup) -> None:
    setup.project.write_text("api_key: theirs\nmodel: openai/a\n")
    settings, keyring, warnings = setup.load()
    assert (settings.api_key, keyring.key_for("openai/a")) == ("", None)
    assert any("api_key is ignored" in warning for warning in warnings)


def test_trust_that_cannot_be_remembered_counts_for_now(setup: Setup) -> None:
    setup.project.write_text("mode: auto-edit\n")
    settings, _, warnings = setup.load(XDG_STATE_HOME=os.devnull)
    assert settings.mode == "auto-edit"
    assert "asked again" in warnings[0]


def test_a_broken_memory_of_trust_trusts_nothing(setup: Setup) -> None:
    setup.project.write_text("mode: auto-edit\n")
    store = setup.home / ".local/state/amas/trust.json"
    store.parent.mkdir(parents=True)
    for text in ("[]", "{", "\0"):
        store.write_text(text)
        assert setup.load(trust=no)[0].mode == "ask"


# Our own files


def test_a_line_is_set_and_all_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new/config.yaml"
    remember(path, "model", "openai/a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("# mine\nstream: false\nmodel : old # why\nignore: [a]")
    path.chmod(0o644)
    remember(path, "model", 'a "quoted": name')
    remember(path, "other", "x")
    assert path.read_text().startswith("# mine\nstream: false\nmodel: ")
    assert read(path) == {
        "stream": False,
        "model": 'a "quoted": name',
        "ignore": ["a"],
        "other": "x",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_has_no_room_for_a_line_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in ("model: >\n  folded\n", "{stream: true}\n", "- list\n"):
        path.write_text(text)
        with pytest.raises(ConfigError):
            remember(path, "model", "openai/a")
        assert path.read_text() == text


def test_a_settings_file_behind_a_link_is_written_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "config.yaml").symlink_to(tmp_path / "dotfiles/config.yaml")
    remember(tmp_path / "config.yaml", "model", "openai/a")
    assert read(tmp_path / "dotfiles/config.yaml") == {"model": "openai/a"}


# The wizard


def config_of(home: Path) -> Path:
    (home / ".config/amas").mkdir(parents=True)
    return home / ".config/amas"


def test_the_wizard_tries_a_key_and_keeps_it_for_the_user_alone(
    terminal, project: Path, home: Path
) -> None:
    files = config_of(home)
    with Server([say("Hello.")], protocol="openai") as server:
        (files / "config.yaml").write_text(
            f"stream: false\nmodel: openai/old\napi_key: stale\napi_base: {server.url}/v1\n"
        )
        screen = terminal("config")
        screen.wait("Number")
        screen.send("2\r")
        screen.wait("Key from platform.openai.com")
        screen.send("sk-pasted-key \r")
        screen.wait("Model")
        screen.send("openai/test-model\r")
        screen.wait("Kept")
        assert screen.ended() == 0
        assert server.requests[0].headers["authorization"] == "Bearer sk-pasted-key"
    assert "sk-pasted-key" not in screen.all()
    assert "comes first" in screen.all()  # the stale one in config.yaml does
    assert stat.S_IMODE((files / "keys.yaml").stat().st_mode) == 0o600
    assert read(files / "keys.yaml") == {"OPENAI_API_KEY": "sk-pasted-key"}
    assert read(files / "config.yaml")["model"] == "openai/test-model"
    assert read(files / "config.yaml")["stream"] is False
    assert [path.name for path in project.iterdir() if path.name != ".git"] == ["calc.py"]


def test_the_wizard_goes_through_the_proxy_and_soon_says_what_cannot_be_reached(
    terminal, home: Path
) -> None:
    heard: list[bytes] = []

    def refuse() -> None:
        """What a proxy does that may not go there."""
        while True:
            try:
                with proxy.accept()[0] as connection:
                    heard.append(connection.recv(1000))
            except OSError:  # closed: the test is over
                return

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        threading.Thread(target=refuse, daemon=True).start()
        screen = terminal("config", HTTPS_PROXY=f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for question, answer in (("Number", "1"), ("Key", "k"), ("Model", ""), ("Keep it", "n")):
            screen.wait(question, 20)  # not after five tries with pauses between them
            screen.send(f"{answer}\r")
        assert screen.ended() == 1
        proxy.shutdown(socket.SHUT_RDWR)
    assert "It did not work" in screen.all()
    assert heard[0].startswith(b"CONNECT api.anthropic.com:443")
    assert len(heard) == 1
    assert "Nothing was kept" in screen.all()
    assert not (home / ".config").exists()


def test_the_wizard_needs_a_terminal(amas) -> None:
    done = amas("config", stdin="2\nkey\n\n")
    assert done.returncode == 2
    assert done.stderr.startswith("amas config asks on a terminal")
