"""The library that walks grammars: llguidance, an optional dependency.

Decides how it is configured; every call of it that can be misused stands here. Never reads what a
user wrote. In: token bytes, translated grammars. Out: tokenizer and matcher handles.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ds_jax import errors
from ds_jax.structured import deep_stack
from ds_jax.structured.limits import Limits

if TYPE_CHECKING:
    import llguidance


class MissingLibraryError(errors.ConfigError, ImportError):
    """llguidance is not installed."""


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """The module.

    Raises:
      MissingLibraryError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module("llguidance")
    except ImportError as error:
        raise MissingLibraryError(
            f"structured output needs llguidance ({error}); install ds_jax[structured]"
        ) from error


def is_installed() -> bool:
    """Whether there is a library; it is not loaded."""
    return importlib.util.find_spec("llguidance") is not None


class _Encoder:
    """What the library asks of a tokenizer."""

    def __init__(
        self,
        tokens: list[bytes],
        special: list[int],
        eos_id: int,
        encode: Callable[[str], Sequence[int]],
    ):
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = eos_id
        self.bos_token_id = None
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("only text is encoded")  # how the library learns that bytes are not
        return list(self._encode(text))


def make_tokenizer(
    tokens: list[bytes],
    special: list[int],
    eos_id: int,
    encode: Callable[[str], Sequence[int]],
) -> llguidance.LLTokenizer:
    """A tokenizer handle; `tokens` holds the bytes of every id, special ones behind 0xFF."""
    wrapper = library().TokenizerWrapper(_Encoder(tokens, special, eos_id, encode))
    return library().LLTokenizer(wrapper, eos_token=[eos_id])


def make_matcher(
    tokenizer: llguidance.LLTokenizer, source: str, limits: Limits
) -> llguidance.LLMatcher:
    """A matcher at the start of a grammar; it may be in an error state. Drops the GIL."""
    bounds = library().LLParserLimits(
        max_items_in_row=limits.row_items,
        step_max_items=limits.step_items,
        max_lexer_states=limits.lexer_states,
        max_grammar_size=limits.grammar_symbols,
        verbose_errors=False,
    )
    return deep_stack.run(
        lambda: library().LLMatcher(tokenizer, source, log_level=0, limits=bounds)
    )


def schema_text(schema: dict[str, Any], whitespace: str | None) -> str:
    """A checked schema as a part of a Lark grammar.

    Args:
      schema: only keywords the library knows.
      whitespace: a regular expression of the blanks between tokens; None: no blanks.
    """
    return f"%json {json.dumps(schema | {'x-guidance': json_options(whitespace)})}"


def json_options(whitespace: str | None) -> dict[str, Any]:
    """Every option that a schema could otherwise set itself."""
    return {
        "item_separator": ",",
        "key_separator": ":",
        "whitespace_flexible": whitespace is not None,
        "whitespace_pattern": whitespace,
        "coerce_one_of": False,
        "lenient": False,
    }


def source(text: str, *, forced: bool) -> str:
    """The grammar of a Lark text.

    Args:
      text: the grammar.
      forced: where only one text can follow, allow only its usual cut into tokens; else every cut.
    """
    head = "" if forced else '%llguidance {"no_forcing": true}\n'
    return library().LLMatcher.grammar_from_lark(head + text)


def regex_text(text: str, classes: str = "") -> str:
    """A regular expression as it is spelled between slashes.

    Args:
      text: the expression.
      classes: letters of the classes that hold ASCII only, such as `dw` in JSON Schema.
    """
    return library().regex_to_lark(text, classes)


def make_executor(threads: int) -> llguidance.LLExecutor:
    """Threads that fill masks side by side, without the GIL."""
    return library().LLExecutor(threads)
