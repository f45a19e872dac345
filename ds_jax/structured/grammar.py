"""A compiled grammar.

Decides nothing: it holds a parser at the start and hands out copies. Never changes after it was
made. In: a matcher handle. Out: matchers, and whether whole texts belong to the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ds_jax.structured.matcher import GrammarFault, Matcher
from ds_jax.structured.trigger import Trigger
from ds_jax.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance


class Grammar:
    """A language over one vocabulary; to be shared between sequences and threads.

    Args:
      kind: what it was compiled from.
      vocabulary: the tokens.
      template: a parser at the start; it is only copied.
      controls: control strings that the grammar itself asks for.
    """

    def __init__(
        self,
        kind: str,
        vocabulary: Vocabulary,
        template: llguidance.LLMatcher,
        controls: Sequence[str] = (),
    ):
        self.kind = kind
        self.vocabulary = vocabulary
        self.controls = tuple(controls)
        self._template = template

    def matcher(self, trigger: Trigger | None = None, committed: Iterable[int] = ()) -> Matcher:
        """A matcher for one sequence.

        Args:
          trigger: starts the grammar later, for example behind the reasoning.
          committed: tokens generated before, by whichever engine: the state is that of a matcher
            that took them one by one.

        Raises:
          GrammarFault: the committed tokens do not belong to the grammar.
        """
        matcher = Matcher(self.vocabulary, self._template.deep_copy(), trigger)
        for token_id in committed:
            matcher.accept(token_id)
        return matcher

    def accepts(self, text: str) -> bool:
        """Whether the whole text belongs to the language; control strings in it are text, except
        those the grammar asks for."""
        try:
            token_ids = self.vocabulary.encode(text, self.controls)
        except UnicodeEncodeError:
            return False
        return self.accepts_ids(token_ids)

    def accepts_ids(self, token_ids: Sequence[int]) -> bool:
        """Whether the tokens, without an end token, are a complete output."""
        matcher = self.matcher()
        try:
            return matcher.accept_while_valid(token_ids) == len(token_ids) and matcher.is_accepting
        except GrammarFault:
            return False
