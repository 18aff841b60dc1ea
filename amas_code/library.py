"""litellm, imported by a thread beside other work, and slim where that is known to go well.

A plain `import litellm` takes seconds and 200 MB. In the releases that our tests pass with it is
imported so that most of it waits until it is needed (lazyimport.py). Where that fails, be it at the
first request, it is thrown away and imported plainly.
"""

import gc
import importlib.metadata
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from amas_code.events import Notice
from amas_code.lazyimport import Finder
from amas_code.places import ours
from amas_code.trouble import causes

TESTED = ("1.100.5", "1.101.5", "1.102.4")  # releases whose slim import our tests hold
SLIM = ("litellm", "openai")
KEPT = 3  # caches of compiled code, 8 MB each; one for each set of versions
QUIET = 0.15  # seconds without a key, until the import goes on
FILL = "import sys; sys.path[:] = sys.argv[1:]; from amas_code import library; library.fill()"


class Library:
    """litellm and how it comes to be there."""

    def __init__(self, slim: bool = True, emit: Callable = lambda event: None):
        self.slim, self.emit = slim, emit
        self.finder: Finder | None = None  # there while it is slim
        self.notice = ""
        self.thread = threading.Thread(target=self.load, daemon=True)
        self.needed = threading.Event()
        self.typed = 0.0  # when the last key came
        self.frozen = False

    def begin(self) -> None:
        """Begin to import it, beside other work, since it will be needed at once."""
        self.needed.set()
        if self.thread.ident is None:
            self.thread.start()

    def typing(self) -> None:
        """A key was typed: begin in the next pause, and wait between modules while more come."""
        self.typed = time.monotonic()
        if self.thread.ident is None:
            self.thread.start()

    def there(self) -> Any:
        """litellm if it is there already, else None."""
        return None if self.thread.ident is None or self.thread.is_alive() else self.get()

    def get(self) -> Any:
        """litellm, waited for. A thread imports it, so that no Ctrl-C leaves it half there."""
        self.begin()
        self.thread.join()
        if self.notice:
            self.emit(Notice(self.notice))
            self.notice = ""
        import litellm

        return litellm

    def answered(self) -> None:
        """Called after each answer. After the first all of the library that is needed is there to
        stay, so garbage collections need not walk through it, which takes 0.1 s and more."""
        if not self.frozen:
            gc.freeze()
            self.frozen = True

    def load(self) -> None:
        gc.disable()  # else it walks through all of it again and again, and keys wait for that
        try:
            prepare()
            if self.slim and "litellm" not in sys.modules:
                self.load_slim()
            settle()
        finally:
            gc.freeze()
            gc.enable()

    def load_slim(self) -> None:
        found = importlib.metadata.version("litellm")
        if found not in TESTED:
            self.notice = (
                f"litellm {found} is not among the releases that amas knows well "
                f"({', '.join(TESTED)}), so it is imported whole: that takes time and memory."
            )
            return
        try:
            self.finder = finder = Finder(SLIM, ours().cache / "slim", self.pause)
            finder.install()
            if not self.needed.is_set() and not finder.cache.exists():
                fill_elsewhere()
            wait_with_validators(True)
            settle()
            if not self.needed.is_set():
                warm_up()
        except Exception as error:  # whatever it is, a plain import may go well
            self.go_back(error)

    def pause(self, module: str) -> None:
        """Leave the processor to the prompt while keys arrive; called before each module."""
        if threading.current_thread() is not self.thread:
            return
        while (left := self.typed + QUIET - time.monotonic()) > 0 and not self.needed.wait(left):
            pass

    def plainly(self, error: Exception) -> bool:
        """Import it whole if its slim import may be to blame for an error; then ask again."""
        if not self.finder or not any(suspicious(each) for each in causes(error)):
            return False
        self.go_back(error)
        settle()
        self.get()
        return True

    def go_back(self, error: Exception) -> None:
        if self.finder:
            self.finder.remove()
            self.finder = None
        wait_with_validators(False)
        what = f"{type(error).__name__}: {error}"[:200]
        self.notice = (
            f"litellm's slim import went wrong ({what}), so it is imported whole. "
            "The setting slim_import: false does so from the start."
        )


def suspicious(error: BaseException) -> bool:
    """Whether it may come of an import that waited: such an error is none of a provider's.

    A package that is simply not there, such as some provider's own SDK, is none of ours either.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error.name.partition(".")[0] in SLIM
    of_a_module = isinstance(error, AttributeError) and str(error).startswith("module ")
    named = isinstance(error, ImportError | NameError | RecursionError)
    return of_a_module or named or type(error).__module__.startswith("pydantic.errors")


def prepare() -> None:
    """What has to be so before litellm is imported."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it downloads a price list
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it reads a .env file above it
    # else openai's SDK walks through all messages again for each request
    os.environ["EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"] = "True"
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    sys.modules.setdefault("tiktoken", tokenizer())


def wait_with_validators(waiting: bool) -> None:
    """Whether pydantic makes the validators of a class when they are used first, or at once."""
    import pydantic

    pydantic.BaseModel.model_config["defer_build"] = waiting


def settle() -> None:
    """Import litellm; quiet, and without what grows with the conversation."""
    import litellm

    litellm.suppress_debug_info = True
    litellm.disable_streaming_logging = True  # else a thread copies all messages after each answer


def warm_up() -> None:
    """Have it import what a request needs; none is made."""
    import litellm

    message = {"role": "user", "content": ""}
    answer = litellm.completion("openai/none", [message], mock_response="none", stream=True)
    for _ in answer:
        pass
    assert litellm.module_level_client


def fill_elsewhere() -> None:
    """Compile in another process, since in this one it would hold up the keys."""
    optimized = ["-O"] * sys.flags.optimize
    command = [sys.executable, *optimized, "-I", "-S", "-c", FILL, *sys.path]
    nowhere = subprocess.DEVNULL
    subprocess.run(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, check=False)


def fill() -> None:
    """Fill the cache for what is installed, and drop old ones."""
    finder = Finder(SLIM, ours().cache / "slim")
    finder.install()
    prepare()
    wait_with_validators(True)
    settle()
    warm_up()
    caches = sorted(finder.cache.parent.iterdir(), key=os.path.getmtime)
    for old in caches[:-KEPT]:
        shutil.rmtree(old)


class Encoding:
    """In the place of tiktoken's, which takes 40 MB: about four bytes to a token."""

    name = "about"

    def encode(self, text: str, **options: Any) -> list[int]:
        return [0] * -(-len(text.encode()) // 4)

    encode_ordinary = encode

    def decode(self, tokens: list[int], **options: Any) -> str:
        return ""


def tokenizer() -> ModuleType:
    module = ModuleType("tiktoken")
    of_any_name = {"get_encoding": encoding, "encoding_for_model": encoding}
    vars(module).update(Encoding=Encoding, **of_any_name)
    return module


def encoding(name: str) -> Encoding:
    return Encoding()
