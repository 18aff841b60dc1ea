"""litellm as amas imports it: slim, and whole where that does not go well."""

import json
import marshal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from amas_code.library import TESTED
from tests.conftest import to
from tests.server import Server, call, say

THREADS = """
import json, threading
from amas_code.library import Library
library, begin, answers = Library(), threading.Barrier(8), []
litellm = library.get()
def ask(name):
    begin.wait()
    said = litellm.completion(name, [{"role": "user", "content": "Hi"}], stream=True,
                              mock_response="Hello.", api_key="none")
    answers.append("".join(chunk.choices[0].delta.content or "" for chunk in said))
names = ["openai/x", "anthropic/claude-x", "gemini/gemini-x", "ollama_chat/x"] * 2
threads = [threading.Thread(target=ask, args=[name]) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers))
"""
TYPING = """
import sys, time
from amas_code.library import Library
library = Library()
library.typing()
library.typed = time.monotonic() + 3600  # as if keys kept coming for an hour
while not library.finder or library.finder not in sys.meta_path: time.sleep(0.01)
print("litellm" in sys.modules and hasattr(sys.modules["litellm"], "model_cost"))
print(hasattr(library.get(), "model_cost"))
"""
WAY = """
import sys
from amas_code.library import Library
heard = []
library = Library(sys.argv[1:] != ["whole"], heard.append)
litellm = library.get()
print(type(litellm).__name__, type(sys.modules["openai"]).__name__)
print(*(notice.text for notice in heard))
"""


def python(script: str, *args: str, env: dict) -> str:
    """What a script prints, run by a Python of its own."""
    command = [sys.executable, "-c", script, *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def here(env: dict) -> dict:
    """An environment in which Python finds the package."""
    return env | {"PYTHONPATH": str(Path(__file__).parents[1])}


def caches(cache: Path) -> list[Path]:
    return [*cache.glob("amas/slim/*")]


# The two ways


def test_it_is_slim_unless_the_setting_says_otherwise(here: dict) -> None:
    assert python(WAY, env=here).split() == ["Module", "Module"]
    assert python(WAY, "whole", env=here).split() == ["module", "module"]


def test_the_installed_release_is_one_that_the_tests_hold(here: dict) -> None:
    found = python("from importlib.metadata import version; print(version('litellm'))", env=here)
    assert found.strip() in TESTED


def test_an_unknown_release_is_imported_whole_and_the_user_told_once(amas, tmp_path: Path) -> None:
    """As an installation where somebody upgraded litellm by hand."""
    told = tmp_path / "site" / "litellm-9.9.9.dist-info" / "METADATA"
    told.parent.mkdir(parents=True)
    told.write_text("Metadata-Version: 2.1\nName: litellm\nVersion: 9.9.9\n")
    path = f"{tmp_path / 'site'}:{Path(__file__).parents[1]}"
    with Server([call("read_file", path="calc.py"), say("Done.")]) as server:
        done = amas("-p", "look", **to(server.url), PYTHONPATH=path)
    assert (done.stdout.strip(), done.returncode) == ("Done.", 0)
    assert done.stderr.count("litellm 9.9.9 is not among the releases") == 1


def test_eight_threads_may_use_it_at_once_the_first_time(here: dict) -> None:
    """Without connections: those litellm, however imported, closes under another thread's feet."""
    assert json.loads(python(THREADS, env=here)) == ["Hello."] * 8


def test_the_import_waits_while_keys_arrive_and_goes_on_when_it_is_needed(here: dict) -> None:
    assert python(TYPING, env=here).split() == ["False", "True"]


# What is kept


def test_where_nothing_can_be_kept_it_is_slim_all_the_same(here: dict) -> None:
    kept = python(WAY, env=here | {"XDG_CACHE_HOME": "/dev/null"})
    assert kept.split() == ["Module", "Module"]


def test_what_is_compiled_is_kept_for_the_user_alone(here: dict, tmp_path: Path) -> None:
    here["XDG_CACHE_HOME"] = str(tmp_path)
    assert python(WAY, env=here).split() == ["Module", "Module"]
    [cache] = caches(tmp_path)
    assert cache.stat().st_mode & 0o077 == 0
    assert {"litellm", "litellm.constants", "openai"} <= {path.name for path in cache.iterdir()}


@pytest.mark.parametrize(
    "module",
    [
        "litellm.constants",
        "litellm.llms.openai.chat.gpt_transformation",
        pytest.param("litellm.main", marks=pytest.mark.long),
        pytest.param("openai", marks=pytest.mark.long),
    ],
)
def test_a_slim_import_that_goes_wrong_is_followed_by_a_whole_one(
    amas, tmp_path: Path, module: str
) -> None:
    """Be it at once or at the first request: the answer comes, and the user knows why it took."""
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Server([say("One."), say("Two.")]) as server:
        assert amas("-p", "look", **to(server.url), **own).stdout == "One.\n"
        [cache] = caches(tmp_path / "cache")
        mark = (cache / module).read_bytes()[:16]
        code = marshal.dumps(compile("", module, "exec"))
        (cache / module).write_bytes(mark + struct.pack("<L", zlib.crc32(code)) + code)
        done = amas("-p", "look", **to(server.url), **own)
    assert (done.stdout, done.returncode) == ("Two.\n", 0)
    assert done.stderr.count("slim import went wrong") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("left", [0, 20])
def test_torn_files_are_made_again(here: dict, tmp_path: Path, left: int) -> None:
    here["XDG_CACHE_HOME"] = str(tmp_path)
    python(WAY, env=here)
    [cache] = caches(tmp_path)
    whole = (cache / "litellm.constants").read_bytes()
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:left])
    assert python(WAY, env=here).split() == ["Module", "Module"]
    assert (cache / "litellm.constants").read_bytes() == whole
