"""What the prompt and the import of litellm bring with them. How much it is: tests.benchmark."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conftest import to
from tests.server import PROTOCOLS, Server, route, say
from tests.terminal import Terminal

AT_THE_PROMPT = {"amas_code", "click", "prompt_toolkit", "rich", "wcwidth"}
WATCHED = """
import atexit, json, os, sys
done = []
def note(event, arguments):
    if event in ("subprocess.Popen", "socket.connect", "socket.getaddrinfo"):
        done.append(f"{event} {arguments[0]}")
sys.addaudithook(note)
def tell():
    with open(os.environ["TOLD"], "w") as file:
        json.dump([sorted(sys.modules), done], file)
atexit.register(tell)
from amas_code.amas import main
main()
"""


def told(env: dict, tmp_path: Path) -> tuple[dict, Callable[[], tuple[set[str], list[str]]]]:
    """An environment for WATCHED, and what that tells: packages not of Python, and what it did."""
    file = tmp_path / "told"

    def read() -> tuple[set[str], list[str]]:
        modules, done = json.loads(file.read_text())
        names = {name.split(".")[0] for name in modules if not name.startswith("_")}
        return names - sys.stdlib_module_names, done

    return env | {"TOLD": str(file), "PYTHONPATH": str(Path(__file__).parents[1])}, read


def test_the_prompt_loads_nothing_heavy_and_asks_nobody_but_git(
    project: Path, env: dict, tmp_path: Path
) -> None:
    """git is asked twice whether a crash left something to be put right, and nobody else."""
    env, read = told(env | to("http://127.0.0.1:9"), tmp_path)
    with Terminal([sys.executable, "-c", WATCHED], project, env) as chat:
        chat.wait("· context ")
        chat.send("\x04")
        assert chat.ended() == 0
    packages, done = read()
    assert packages <= AT_THE_PROMPT
    assert len(done) <= 2 and set(done) <= {"subprocess.Popen git"}


def test_a_request_loads_no_tokenizer_and_nothing_for_servers(
    project: Path, env: dict, tmp_path: Path
) -> None:
    unwanted = {
        "aiohttp",
        "tokenizers",
        "huggingface_hub",
        "jinja2",
        "boto3",
        "fastapi",
        "requests",
    }
    env, read = told(env, tmp_path)
    for protocol in PROTOCOLS:
        with Server([say("Hello.")], protocol) as server:
            wire = {f"AMAS_{k.upper()}": v for k, v in route(protocol, server.url).items()}
            command = [sys.executable, "-c", WATCHED, "-p", "hello"]
            with Terminal(command, project, env | wire) as task:
                assert task.ended() == 0
        assert not read()[0] & unwanted, protocol
