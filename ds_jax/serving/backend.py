"""What the service needs of an engine and of a model.

Decides the interface that the real engine and the mock share. Never computes. In: nothing. Out:
protocols, and `Model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Protocol

from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import GenerateRequest, ImageSpan, TokenEvent


class Stream(Protocol):
    """Events of one request."""

    async def batch(self) -> list[TokenEvent]:
        """Every event that is there, at least one; empty behind the last one."""
        ...

    async def rest(self) -> list[TokenEvent]:
        """Every event up to the last one, once that is there; wakes up once."""
        ...

    @property
    def backlog(self) -> int:
        """Events that wait to be read."""
        ...

    async def aclose(self) -> None:
        """Aborts the request, if it has not ended."""
        ...


class Backend(Protocol):
    """One replica. `submit` is called inside an event loop, everything else from anywhere."""

    def submit(self, request: GenerateRequest, seed: int | None = None) -> Stream:
        """Sends a request off; raises RequestError."""
        ...

    def abort(self, request_id: str) -> None:
        """Ends a request with the next step; its last event says `cancelled`."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it will never run anything again; None: it can."""
        ...

    def stats(self) -> dict[str, int | float]:
        """Numbers now and since the start."""
        ...

    def explain_miss(
        self, token_ids: list[int], tenant: str = "", images: Iterable[ImageSpan] = ()
    ) -> Any:
        """Why a prompt is not in the prefix cache."""
        ...

    def close(self) -> None:
        """Cancels what is under way; nothing can be submitted afterwards."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """What is known of the served model.

    Attributes:
      tokenizer: text to ids and back.
      bos_token_id: starts a plain prompt.
      vocab_size: ids that exist.
      max_context: positions of a sequence, prompt and output together.
      slots: sequences the engine runs at once.
      page_tokens: tokens of a cache page.
      fingerprint: names weights and settings in answers.
    """

    tokenizer: Tokenizer
    bos_token_id: int
    vocab_size: int
    max_context: int
    slots: int
    page_tokens: int
    fingerprint: str
