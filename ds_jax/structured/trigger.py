"""When a grammar starts.

Decides what has to be generated first: a sequence of token ids, such as the end of reasoning. Never
knows the grammar. In: token ids. Out: how much of the sequence is complete.
"""

from __future__ import annotations

import dataclasses

from ds_jax import errors
from ds_jax.grammar_request import GrammarRequest


@dataclasses.dataclass(frozen=True, slots=True)
class Trigger:
    """Output is free until these ids have come, one after the other.

    Args:
      token_ids: at least one id.
      bound_token_id: once it was generated, nothing but the trigger may follow.
      holds_end: the end token is refused as long as the grammar has not started; without it an
        output may end unconstrained.
    """

    token_ids: tuple[int, ...]
    bound_token_id: int | None = None
    holds_end: bool = True
    _fallbacks: tuple[int, ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self):
        for token_id in (*self.token_ids, self.bound_token_id or 0):
            if type(token_id) is not int or token_id < 0:
                raise errors.RequestError(
                    f"trigger token id {token_id!r}: must be a whole number from 0",
                    param="trigger_token_ids",
                )
        if not self.token_ids:
            raise errors.RequestError(
                "trigger_token_ids=[]: must hold at least one id; leave it out to start at once",
                param="trigger_token_ids",
            )
        fallbacks, length = [0], 0
        for index in range(1, len(self.token_ids)):
            while length and self.token_ids[index] != self.token_ids[length]:
                length = fallbacks[length - 1]
            length += self.token_ids[index] == self.token_ids[length]
            fallbacks.append(length)
        object.__setattr__(self, "_fallbacks", tuple(fallbacks))

    def advance(self, matched: int, token_id: int) -> int:
        """Ids of the trigger that are complete after one more token, `matched` of them before.

        Complexity: constant, averaged over a sequence.
        """
        while matched and token_id != self.token_ids[matched]:
            matched = self._fallbacks[matched - 1]
        return matched + (token_id == self.token_ids[matched])


def of(request: GrammarRequest) -> Trigger | None:
    """The trigger of a request; None: its grammar starts at once."""
    if not request.trigger_token_ids:
        return None
    return Trigger(request.trigger_token_ids, request.bound_token_id, request.holds_end)
