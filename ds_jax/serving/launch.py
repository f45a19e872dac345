"""The service, from the command line.

Decides the flags, and how a pipeline becomes a backend. Never handles a request. In: flags. Out: a
server that runs until a signal ends it.

Every field of `Settings` is a flag.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from absl import flags

from ds_jax import config, model_flags
from ds_jax.errors import ConfigError, RequestError
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import GenerateRequest
from ds_jax.serving import keys, mock
from ds_jax.serving.backend import Backend, Model
from ds_jax.serving.settings import HELP, Settings

TINY = pathlib.Path(__file__).parents[1] / "assets" / "tiny"
MOCK_TEXT = "A short thought.</think>This answer was written in advance. "

_WARM_UP = flags.DEFINE_bool("warm_up", False, "Compile every program before listening.")
_MOCK = flags.DEFINE_bool("mock", False, "Scripted answers instead of a model.")
_MOCK_STEP_S = flags.DEFINE_float("mock_step_s", 0.0, "Pause between tokens of --mock.")
_MOCK_TOKENS = flags.DEFINE_integer("mock_tokens", 32, "Tokens of an answer of --mock.")
_NEW_KEY = flags.DEFINE_string("new_key", None, "Make a key of this name, print it, and end.")


def _define(field: dataclasses.Field[Any]) -> flags.FlagHolder[Any]:
    """The flag of a field of `Settings`."""
    name, text = field.name, HELP[field.name]
    default: Any = field.default
    kind = str(field.type)
    if kind == "bool":
        return flags.DEFINE_bool(name, default, text)
    if kind.startswith("int"):
        return flags.DEFINE_integer(name, default, text)
    if kind == "float":
        return flags.DEFINE_float(name, default, text)
    if kind.startswith("tuple"):
        return flags.DEFINE_list(name, list(default), text)
    return flags.DEFINE_string(name, default, text)


_SETTINGS = {field.name: _define(field) for field in dataclasses.fields(Settings)}


def main(arguments: list[str]) -> None:
    """Runs what the flags say."""
    if arguments:
        raise RequestError(f"unexpected argument {arguments[0]!r}; settings are flags: --helpfull")
    if _NEW_KEY.value:
        key, entry = keys.make(_NEW_KEY.value)
        print(f"The key, shown once:\n\n{key}\n\nAdd to the file of --keys_file:\n\n{entry}")
        return
    from ds_jax.serving import server  # says which extra is missing before a model is loaded
    from ds_jax.serving.service import Service

    settings = _settings()
    _log_to_stderr()
    model, engine, restart = _mocked() if _MOCK.value else _loaded()
    service = Service(settings, model, engine, restart)
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it again and again takes long pauses
    server.Server(service).run()


def _settings() -> Settings:
    values = {name: flag.value for name, flag in _SETTINGS.items()}
    values["models"] = tuple(values["models"])
    return Settings(**values)


def _log_to_stderr() -> None:
    """One line a message; those of requests are JSON."""
    log = logging.getLogger("ds_jax.serving")
    log.setLevel(logging.INFO)
    log.propagate = False
    to_stderr = logging.StreamHandler(sys.stderr)
    log.addHandler(to_stderr)


def _loaded() -> tuple[Model, Backend, Callable[[], Backend]]:
    from ds_jax.pipeline import Pipeline  # jax is loaded only when it is needed

    pipeline = Pipeline.from_checkpoint(**model_flags.options())
    if _WARM_UP.value:
        pipeline.warm_up(_compiled)
    return of_pipeline(pipeline), pipeline.engine, pipeline.restart


def _compiled(done: int, total: int) -> None:
    print(f"compiled {done} of {total} steps", file=sys.stderr, flush=True)


def of_pipeline(pipeline: Any) -> Model:
    """What the service needs to know of a loaded model.

    Raises: ConfigError: it has no tokenizer.
    """
    if pipeline.tokenizer is None:
        raise ConfigError("the checkpoint has no tokenizer.json; the service needs text")
    limits = pipeline.loop.scheduler.limits
    return Model(
        tokenizer=pipeline.tokenizer,
        bos_token_id=pipeline.model.bos_token_id,
        vocab_size=pipeline.model.vocab_size,
        max_context=limits.max_context,
        slots=limits.slots * limits.ranks,
        page_tokens=limits.page_tokens,
        fingerprint=f"fp_{limits.fingerprint.hex()[:16]}",
    )


def _mocked() -> tuple[Model, Backend, Callable[[], Backend]]:
    given = model_flags.CHECKPOINT.value
    folder = TINY if given == "tiny" else pathlib.Path(given)
    shape, _ = config.load(folder)
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
    model = Model(
        tokenizer=tokenizer,
        bos_token_id=shape.bos_token_id,
        vocab_size=shape.vocab_size,
        max_context=model_flags.MAX_CONTEXT.value or 4096,
        slots=model_flags.MAX_SEQUENCES.value,
        page_tokens=128,
        fingerprint="fp_mock",
    )
    ids = tokenizer.encode(MOCK_TEXT)
    answer = (ids * (_MOCK_TOKENS.value // len(ids) + 1))[: _MOCK_TOKENS.value]

    def script(_: GenerateRequest) -> list[int]:
        return answer

    drafts = model_flags.NEXTN.value

    def start() -> Backend:
        return mock.MockEngine(script, slots=model.slots, step_s=_MOCK_STEP_S.value, drafts=drafts)

    return model, start(), start
