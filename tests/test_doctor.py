"""What `amas doctor` promises: to see what is wrong, say what to do, show no key, and stay calm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import amas_code
from amas_code.machine import limits
from tests.conftest import AMAS
from tests.server import Server

KEY = "zk-0123456789abcdefghijKLMNOPQRST"  # of no form that tells a key by itself
KEYED = {"AMAS_MODEL": "openai/test-model", "OPENAI_API_KEY": KEY}
NOBODY = {"OLLAMA_HOST": "127.0.0.1:1"}  # no Ollama there, whatever the machine has
STATES = ("ok", "note", "problem")
ROOT = Path(amas_code.__file__).parent.parent


def assert_calm(done: subprocess.CompletedProcess) -> None:
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text and "mistake" not in text, text


@pytest.fixture
def doctor(amas):
    """Run `amas doctor --json`: the checks by their names, once the object is as it should be."""

    def run(*before: str, **more: str) -> dict[str, dict]:
        done = amas(*before, "doctor", "--json", **NOBODY | more)
        assert_calm(done)
        [line] = done.stdout.splitlines()
        report = json.loads(line)
        assert report.keys() == {"version", "ok", "checks"}
        assert all(c.keys() == {"group", "name", "state", "text", "hint"} for c in report["checks"])
        assert all(c["state"] in STATES and c["text"] for c in report["checks"])
        problems = [c for c in report["checks"] if c["state"] == "problem"]
        assert report["ok"] is (not problems)
        assert done.returncode == (1 if problems else 0)
        assert all(c["hint"] for c in problems)
        checks = {c["name"]: c for c in report["checks"]}
        assert len(checks) == len(report["checks"])
        return checks

    return run


def state(check: dict, *words: str) -> str:
    for word in words:
        assert word in check["text"] + " -> " + check["hint"], check
    return check["state"]


def troubled(checks: dict) -> set[str]:
    return {name for name, check in checks.items() if check["state"] == "problem"}


# What it says


def test_a_machine_that_is_fit_has_no_problem(doctor, project: Path, home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\nname = Ute\nemail = ute@example.org\n")
    checks = doctor(**KEYED)
    assert not troubled(checks)
    for name in ("version", "python", "litellm", "git", "memory", "system", "sessions", "config"):
        assert state(checks[name]) == "ok", checks[name]
    assert state(checks["project"], str(project), "under git") == "ok"
    assert state(checks["model"], "openai/test-model", "by the settings") == "ok"
    assert state(checks["keys"], "OPENAI_API_KEY (environment)") == "ok"
    assert state(checks["settings"], "AMAS_MODEL") == "ok"
    assert state(checks["sandbox"], "none yet", "asked") == "note"
    assert state(checks["browser"], "playwright") == "ok"
    assert "ute@" not in str(checks)


def test_each_check_is_a_line_with_a_mark_and_the_next_step_below(amas) -> None:
    done = amas("doctor", **NOBODY)
    assert (done.returncode, done.stderr) == (1, "")
    rows = done.stdout.splitlines()
    assert rows[0] == "Amas" and rows[1].split()[:2] == ["ok", "version"]
    for row in rows[:-1]:
        if row.startswith(" "):
            assert row.split()[0] in (*STATES, "->"), row
    at = next(n for n, row in enumerate(rows) if row.split()[:2] == ["problem", "model"])
    assert rows[at + 1].split()[:3] == ["->", "amas", "config,"]
    assert rows[-1].startswith("1 problem, ")


def test_without_a_key_it_says_so_and_fails(doctor) -> None:
    checks = doctor()
    assert troubled(checks) == {"model"}
    assert state(checks["model"], "no key", "amas config") == "problem"
    assert state(checks["keys"], "none") == "ok"
    named = doctor("-m", "gemini/gemini-flash-latest")
    assert state(named["model"], "gemini/gemini-flash-latest", "GEMINI_API_KEY=") == "problem"
    assert troubled(doctor("-m", "unheard-of/model")) == set()


def test_the_first_key_decides_on_the_model_as_it_does_in_a_chat(doctor, home: Path) -> None:
    keys = home / ".config/amas/keys.yaml"
    keys.parent.mkdir(parents=True)
    keys.write_text(f"GROQ_API_KEY: {KEY}\n")
    keys.chmod(0o600)
    checks = doctor(MISTRAL_API_KEY="m" * 20)
    assert state(checks["model"], "groq/", "first key") == "ok"
    assert checks["keys"]["text"] == "GROQ_API_KEY (keys.yaml), MISTRAL_API_KEY (environment)"
    assert state(checks["settings"], "~/.config/amas/keys.yaml") == "ok"
    assert state(doctor(GROQ_API_KEY="g" * 20)["keys"], "GROQ_API_KEY (environment)") == "ok"


def test_a_fallback_without_a_key_is_named(doctor) -> None:
    more = {"AMAS_FALLBACK_MODEL": "openai/other, groq/one"}
    assert state(doctor(**KEYED, **more)["model"], "fallback groq/one") == "note"


def test_a_key_with_blanks_or_quotes_is_named(doctor) -> None:
    for key in (f"{KEY} ", f"{KEY}\n", f'"{KEY}"', f"{KEY}…"):
        checks = doctor(**KEYED | {"OPENAI_API_KEY": key})
        assert state(checks["keys"], "OPENAI_API_KEY: no key holds") == "note"
        assert KEY not in str(checks)


def test_a_local_ollama_is_asked_what_it_has(doctor) -> None:
    with Server(models=("qwen3:latest", "gemma:2b")) as server:
        checks = doctor(OLLAMA_HOST=server.url)
        assert state(checks["ollama"], server.url, "models: 2") == "ok"
        assert state(checks["model"], "ollama_chat/", "Ollama has") == "ok"
        there = doctor("-m", "ollama_chat/qwen3", OLLAMA_HOST=server.url)
        assert state(there["model"]) == "ok"
        absent = doctor("-m", "ollama_chat/gemma", OLLAMA_HOST=server.url)
        assert state(absent["model"], "ollama pull gemma") == "problem"
    assert state(doctor("-m", "ollama_chat/qwen3")["model"], "ollama serve") == "problem"


def test_no_other_machine_is_asked(doctor) -> None:
    for address in ("192.0.2.1", "https://models.example.org", "someone:secret@192.0.2.1:99"):
        checks = doctor(OLLAMA_HOST=address)
        assert state(checks["ollama"], "not asked") == "ok"
        assert state(checks["model"], "other machine") == "note"
        assert "secret" not in str(checks)
    assert state(doctor("-m", "ollama_chat/x", OLLAMA_HOST="192.0.2.1")["model"]) == "ok"


# No key


def assert_hidden(text: str, key: str = KEY) -> None:
    parts = {key[start : start + 6] for start in range(len(key) - 5)}
    assert not [part for part in parts if part in text], text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("keys.yaml", f"OPENAI_API_KEY: {KEY}\n"),  # others can read it, too
        ("keys.yaml", f"OPENAI_API_KEY: *{KEY}\n"),
        ("keys.yaml", f"OPENAI_API_KEY: !{KEY} x\n"),
        ("keys.yaml", f"OPENAI_API_KEY: [{KEY}]\n"),
        ("keys.yaml", f"{KEY}\n"),
        ("config.yaml", f"api_key: {KEY}\nmodel: openai/x\n"),
        ("config.yaml", f"api_key: [{KEY}]\n"),
        ("config.yaml", f"max_turns: {KEY}\n"),
        ("config.yaml", f"allow: {{a: {KEY}}}\n"),
        ("config.yaml", f"mode: {KEY}\n"),
        ("config.yaml", f'mode: "{KEY}\'"\n'),
        ("config.yaml", f"model: *{KEY}\n"),
    ],
)
def test_no_part_of_a_key_is_shown(amas, home: Path, file: str, content: str) -> None:
    (home / ".config/amas").mkdir(parents=True)
    (home / ".config/amas" / file).write_text(content)
    done = amas("doctor", **NOBODY)
    assert_calm(done)
    assert_hidden(done.stdout + done.stderr)


def test_no_key_of_the_environment_is_shown(amas, home: Path) -> None:
    state_directory = home / ".local/state/amas"
    state_directory.mkdir(parents=True)
    (state_directory / "traceback.txt").write_text(f"ValueError: {KEY}\n")
    for name in ("OPENAI_API_KEY", "AMAS_API_KEY", "OTHER_API_KEY", "AMAS_MODE", "HTTPS_PROXY"):
        more = {name: KEY, "OPENAI_API_KEY": KEY, "AMAS_MODEL": f"openai/{KEY}"}
        for arguments in (["doctor"], ["doctor", "--json"]):
            done = amas(*arguments, **NOBODY | more)
            assert_calm(done)
            assert_hidden(done.stdout + done.stderr)


# Trouble


def test_a_broken_settings_file_is_a_problem_and_the_other_checks_go_on(
    doctor, project: Path, home: Path
) -> None:
    for file in (home / ".config/amas/config.yaml", project / ".amas/config.yaml"):
        file.parent.mkdir(parents=True)
        file.write_text("stream: true\nmodel: [\n")
        checks = doctor(**KEYED)
        assert troubled(checks) == {"settings"}
        assert (
            state(checks["settings"], "config.yaml: line 3: not valid YAML", "start") == "problem"
        )
        assert state(checks["model"], "not known") == "note"
        assert state(checks["git"]) in ("ok", "note") and state(checks["python"]) == "ok"
        file.write_text("stream: maybe\n")
        assert state(doctor(**KEYED)["settings"], "true or false, found 'maybe'") == "problem"
        file.unlink()
    assert state(doctor(AMAS_MODE="yolo")["settings"], "there is no 'yolo'") == "problem"


def test_keys_that_others_can_read_are_a_problem(doctor, home: Path) -> None:
    (home / ".config/amas").mkdir(parents=True)
    (home / ".config/amas/keys.yaml").write_text(f"OPENAI_API_KEY: {KEY}\n")
    (home / ".config/amas/keys.yaml").chmod(0o644)
    assert state(doctor()["settings"], "chmod 600 ~/.config/amas/keys.yaml") == "problem"


def test_whether_a_project_s_settings_are_trusted(amas, doctor, project: Path) -> None:
    (project / ".amas").mkdir()
    file = project / ".amas/config.yaml"
    file.write_text("ignore: [x]\n")
    assert state(doctor(**KEYED)["settings"], "(needs no trust)") == "ok"
    file.write_text("mode: plan\nsream: 1\n")
    assert state(doctor(**KEYED)["settings"], "(not trusted)", "left out: mode") == "note"
    assert state(doctor("--trust", **KEYED)["settings"], "(not trusted)") == "note"  # kept so
    file.write_text("mode: plan\n")
    amas("--trust", "hi", **NOBODY)
    assert state(doctor(**KEYED)["settings"], "(trusted)") == "ok"


def test_without_git_it_says_what_is_missing(doctor, tmp_path: Path) -> None:
    checks = doctor(**KEYED, PATH=str(tmp_path))
    assert not troubled(checks)
    assert state(checks["git"], "no commits", "apt install git") == "note"
    assert state(checks["ripgrep"], "in Python") == "note"
    assert state(doctor(**KEYED, PATH="")["git"], "not found") == "note"


def test_a_git_that_does_not_work_is_told_of(doctor, tmp_path: Path) -> None:
    program = tmp_path / "git"
    for script, told in (
        ("echo broken >&2; exit 1", "it does not work: broken"),
        ("exec sleep 60", "does not end"),
    ):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        checks = doctor(**KEYED, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert state(checks["git"], told) == "note"
        assert not troubled(checks)


def test_a_repository_that_git_refuses_is_told_of(doctor, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/.git").write_text("nonsense\n")
    assert state(doctor(**KEYED, cwd=tmp_path / "odd")["project"], "git refuses it") == "note"


def test_a_git_that_does_not_know_the_user_is_told_of(doctor) -> None:
    assert state(doctor(**KEYED)["git"], "who you are", "git config --global") == "note"


def test_what_is_no_project_is_told_of(doctor, home: Path, tmp_path: Path) -> None:
    assert state(doctor(**KEYED, cwd=home)["project"], "none: ~ is no project") == "note"
    assert state(doctor(**KEYED, cwd="/")["project"], "none: / is no project") == "note"
    (tmp_path / "plain").mkdir()
    checks = doctor("-C", str(tmp_path / "plain"), **KEYED)
    assert state(checks["project"], "plain, not under git", "git init") == "note"
    below = tmp_path / "project/below"
    below.mkdir()
    assert state(doctor(**KEYED, cwd=below)["project"], f"{tmp_path}/project, under") == "ok"


def test_a_project_whose_sessions_lie_elsewhere_is_told_of(
    doctor, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "else").mkdir()
    (project / ".amas").symlink_to(tmp_path / "else")
    assert state(doctor(**KEYED)["sessions"], "~/.local/state/amas/sessions", "link") == "note"


def test_nothing_can_be_kept_anywhere(doctor, tmp_path: Path) -> None:
    nowhere = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull}
    checks = doctor(**KEYED, **nowhere)
    assert troubled(checks) == {"state"}
    assert state(checks["state"], "cannot be written", "XDG_STATE_HOME") == "problem"
    assert state(checks["cache"], "cannot be written") == "note"
    assert state(checks["config"], "cannot be written") == "note"
    assert state(checks["loading"], "no place") == "note"
    assert state(doctor(**KEYED, HOME=os.devnull)["state"], "cannot be written") == "note"
    (tmp_path / "plain").mkdir()
    aside = doctor(**KEYED, XDG_STATE_HOME=os.devnull, cwd=tmp_path / "plain")
    assert troubled(aside) == {"state"}  # no log of edits, so no edits


def test_the_last_crash_is_named(doctor, home: Path) -> None:
    assert state(doctor()["crash"], "none") == "ok"
    file = home / ".local/state/amas/traceback.txt"
    file.parent.mkdir(parents=True)
    file.write_text("Traceback …\n  File …\nKeyError: 'a\x1b[31mb'\n")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    told = doctor()["crash"]
    assert state(told, "Nov 2023", "KeyError: 'a␛[31mb'", "~/.local/state/amas/traceback") == "note"


def test_a_check_that_fails_breaks_no_other(doctor, home: Path) -> None:
    (home / ".local/state/amas/traceback.txt").mkdir(parents=True)
    checks = doctor(**KEYED)
    assert troubled(checks) == {"crash"}
    assert state(checks["crash"], "could not be checked: IsADirectoryError") == "problem"


def test_code_that_is_compiled_again_at_each_start_is_named(doctor, tmp_path: Path) -> None:
    off = {"PYTHONDONTWRITEBYTECODE": "1"}
    never = doctor(**KEYED, **off, PYTHONPYCACHEPREFIX=str(tmp_path / "none"))
    assert state(never["compiled"], "amas_code", "rich", "-m compileall -q") == "note"
    assert state(doctor(**KEYED, **off)["compiled"], "PYTHONDONTWRITEBYTECODE") == "note"
    kept = doctor(**KEYED, PYTHONPYCACHEPREFIX=str(tmp_path / "kept"))
    assert state(kept["compiled"], "first use") == "ok"
    nowhere = doctor(**KEYED, PYTHONPYCACHEPREFIX=os.devnull)
    assert state(nowhere["compiled"], "-m compileall -q") == "note"


def test_litellm_that_is_not_there_is_a_problem(env: dict, project: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    installed = next(Path(p) for p in sys.path if (Path(p) / "litellm").is_dir())
    for path in installed.iterdir():
        if not path.name.startswith("litellm"):
            (others / path.name).symlink_to(path)
    script = f"import sys; sys.path += [{str(ROOT)!r}, {str(others)!r}]"
    run = f"{script}; from amas_code.amas import main; main()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", run, "doctor"],
        cwd=project,
        env={name: env[name] for name in env if name != "PYTHONPATH"} | KEYED | NOBODY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert_calm(done)
    assert done.returncode == 1, done.stderr
    assert "problem litellm   not installed" in done.stdout
    assert "note    loading   not at all" in done.stdout
    assert "-m pip install litellm==" in done.stdout


def test_the_way_litellm_is_imported_is_told(doctor, tmp_path: Path) -> None:
    fresh = doctor(**KEYED, XDG_CACHE_HOME=str(tmp_path))["loading"]
    assert fresh["text"].startswith(("slim; the first use compiles", "whole, as this release"))
    off = doctor(**KEYED, AMAS_SLIM_IMPORT="false")["loading"]
    assert state(off, "slim_import is false") == "note"


def test_variables_of_the_network_are_named_without_their_values(doctor, tmp_path: Path) -> None:
    proxy = {"https_proxy": "http://someone:secret@192.0.2.1", "NO_PROXY": "192.0.2.9"}
    checks = doctor(**KEYED, **proxy)
    assert state(checks["network"], "https_proxy, NO_PROXY") == "ok"
    assert "secret" not in str(checks) and "192.0.2" not in str(checks)
    gone = doctor(**KEYED, SSL_CERT_FILE=str(tmp_path / "none.pem"))["network"]
    assert state(gone, "SSL_CERT_FILE: no such file") == "note"


def test_the_memory_that_a_cgroup_allows_counts(tmp_path: Path) -> None:
    group, top = tmp_path / "cgroup", tmp_path / "top"
    (top / "user/box").mkdir(parents=True)
    group.write_text("4:memory:/else\n0::/user/box\n")
    assert not [*limits(group, top)]
    (top / "user/box/memory.max").write_text("max\n")
    (top / "user/box/memory.high").write_text(f"{300 << 20}\n")
    (top / "user/memory.max").write_text(f"{200 << 20}\n")
    assert sorted(limits(group, top)) == [200, 300]
    assert not [*limits(tmp_path / "missing", tmp_path / "missing")]


# Anywhere


def test_it_changes_nothing(amas, project: Path, home: Path) -> None:
    def files() -> list[str]:
        return sorted(f"{p} {p.lstat().st_mtime_ns}" for d in (project, home) for p in d.rglob("*"))

    before = files()
    amas("doctor", **KEYED, **NOBODY)
    assert files() == before


@pytest.mark.parametrize(
    "world",
    [
        {"HOME": os.devnull},
        {"HOME": ""},
        {"HOME": "relative"},
        {"HOME": "/"},
        {"XDG_STATE_HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"TERM": "dumb"},
        {"PATH": ""},
        {"OLLAMA_HOST": "http://[::1", "OLLAMA_API_BASE": "::"},
        {"AMAS_API_BASE": "no address", "AMAS_MODEL": "ollama_chat/x"},
        {"SSL_CERT_FILE": os.devnull},
        {"COLUMNS": "1"},
        {"GIT_DIR": "/nowhere"},
    ],
    ids=str,
)
def test_a_hostile_world_gets_a_report(amas, world: dict) -> None:
    done = amas("doctor", **world)
    assert_calm(done)
    assert done.returncode in (0, 1) and done.stderr == ""
    assert done.stdout.startswith("Amas\n") and " problem" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("$amas doctor <&-", 1),
        ("$amas doctor >&-", 1),
        ("$amas doctor --json <&- >&- 2>&-", 1),
        ("$amas doctor | head -0; exit ${PIPESTATUS[0]}", 1),
        ("yes | $amas doctor", 1),
    ],
)
def test_closed_streams_are_no_trouble(project: Path, env: dict, script: str, code: int) -> None:
    done = subprocess.run(
        ["bash", "-c", f"amas='{' '.join(AMAS)}'; {script}"],
        cwd=project,
        env=env | NOBODY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    assert_calm(done)
    assert "Exception ignored" not in done.stderr


def test_a_report_in_a_pipe_is_plain_and_not_wrapped(amas) -> None:
    done = amas("doctor", **NOBODY, COLUMNS="60", TERM="xterm-256color")
    assert "\x1b" not in done.stdout
    assert any(len(row) > 60 for row in done.stdout.splitlines())
    assert state_rows(done.stdout)


def state_rows(text: str) -> list[str]:
    """The rows that begin a check."""
    return [row for row in text.splitlines() if row.startswith("  ") and row.split()[0] in STATES]


@pytest.mark.parametrize("columns", [60, 100])
def test_words_go_on_in_their_column_and_paths_stay_whole(
    terminal, project: Path, columns: int
) -> None:
    screen = terminal("doctor", columns=columns, rows=80, **NOBODY)
    assert screen.ended() == 1
    rows = screen.all().splitlines()
    for row in rows:
        assert row[:1] != " " or row.startswith(" " * 20) or row.split()[0] in STATES, row
    assert len(state_rows(screen.all())) > 20
    assert (" " * 20 + "commands run with your rights" in rows) is (columns == 60)
    assert str(project).encode() in screen.raw
    assert b"\x1b[1;31mproblem" in screen.raw
    assert rows[-1].startswith("1 problem, ")


@pytest.mark.parametrize("world", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colours_the_marks_are_words(terminal, world: dict) -> None:
    screen = terminal("doctor", rows=80, **NOBODY, **world)
    assert screen.ended() == 1
    assert not [
        code for code in (b"\x1b[31", b"\x1b[32", b";31m", b"\x1b[33") if code in screen.raw
    ]
    assert "problem model" in screen.all() and "ok      python" in screen.all()


def test_on_a_terminal_it_tells_what_the_terminal_can_do(terminal) -> None:
    screen = terminal("doctor", **NOBODY)
    assert screen.ended() == 1
    assert "ok      terminal  xterm-256color, utf-8, 100 columns, colours: 256" in screen.all()


def test_help_and_tasks_are_told_apart(amas) -> None:
    assert amas("doctor", "--help").stdout.startswith("Usage: amas doctor")
    task = amas("doctor", "my code", **NOBODY)
    assert task.returncode == 3 and "There is no model to ask yet" in task.stderr
