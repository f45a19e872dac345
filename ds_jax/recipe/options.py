"""What the operator decides about conversions.

Decides the names of the accepted models, the defaults and bounds, and how lenient a conversion is.
Never sees a request. In: keyword arguments. Out: immutable `ConversionOptions`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ds_jax.recipe import arguments
from ds_jax.recipe.named_enum import NamedEnum
from ds_jax.recipe.response_store import ResponseStore
from ds_jax.recipe.special_tokens import SpecialTokens

MAX_TOKENS_UPPER_BOUND = 393216


class ModelVersion(NamedEnum):
    """The model a conversation is for; it selects the prompt encoding."""

    DeepseekV4Pro = 0
    """Rendered by `DeepseekV4Encoding`."""
    DeepseekV41Flash = 1
    """Rendered by `DeepseekV41Encoding`."""


class WebSearchBehavior(NamedEnum):
    """What happens to web search declarations, choices of them, and their blocks in Messages."""

    Drop = 0
    """They are left out."""
    Reject = 1
    """The request is refused."""


class ReasoningContentBehavior(NamedEnum):
    """What happens to assistant turns without reasoning while thinking is on."""

    FillEmpty = 0
    """Their reasoning becomes an empty string."""
    Reject = 1
    """The request is refused where the reasoning has to come back; Chat Completions still takes an
    empty string.
    """


class EncryptedContentBehavior(NamedEnum):
    """What happens to items of Responses requests whose content is there only encrypted."""

    Ignore = 0
    """They are left out."""
    Reject = 1
    """The request is refused."""


def _default_versions() -> dict[str, ModelVersion]:
    return {
        "DeepSeek-V4-Pro": ModelVersion.DeepseekV4Pro,
        "DeepSeek-V4.1-Flash": ModelVersion.DeepseekV41Flash,
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOptions:
    """Settings of every conversion; the defaults are those of deepseek-recipe.

    Args:
      default_thinking_mode: thinking when a request says nothing about it.
      reasoning_content_behavior: assistant turns without reasoning while thinking.
      responses_web_search: web search in Responses requests.
      messages_web_search: web search in Messages requests.
      thinking_max_tokens_upper_bound: largest `max_tokens` while thinking, in tokens. Chat
        Completions and Responses refuse more, Messages lowers it.
      non_thinking_max_tokens_upper_bound: the same without thinking.
      shared_model_versions: accepted model names (exact, case-sensitive). Copied; the field is
        only to be read, `model_versions_by_name` is a copy.
      special_tokens: spellings of the control tokens in the parsing options and image placeholders.
      max_choices: largest `n` of a Chat Completions request. 1 refuses every other `n`, as
        deepseek-recipe does; more is an extension.
      response_store: where Responses requests find `previous_response_id` and keep what they
        `store`. Without one (as in deepseek-recipe) both are ignored.
      encrypted_content: items of Responses requests that hold nothing but `encrypted_content`.
        deepseek-recipe ignores them.

    Raises:
      TypeError: a value of another type.
      OverflowError: a bound outside 32 bits.
    """

    default_thinking_mode: bool = True
    reasoning_content_behavior: ReasoningContentBehavior = ReasoningContentBehavior.FillEmpty
    responses_web_search: WebSearchBehavior = WebSearchBehavior.Drop
    messages_web_search: WebSearchBehavior = WebSearchBehavior.Reject
    thinking_max_tokens_upper_bound: int = MAX_TOKENS_UPPER_BOUND
    non_thinking_max_tokens_upper_bound: int = MAX_TOKENS_UPPER_BOUND
    shared_model_versions: dict[str, ModelVersion] = dataclasses.field(
        default_factory=_default_versions, hash=False
    )
    special_tokens: SpecialTokens = dataclasses.field(default_factory=SpecialTokens)
    max_choices: int = 1
    response_store: ResponseStore | None = None
    encrypted_content: EncryptedContentBehavior = EncryptedContentBehavior.Ignore

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            arguments.record(name, getattr(self, name), kind)
        arguments.flag("default_thinking_mode", self.default_thinking_mode)
        for name in ("thinking_max_tokens_upper_bound", "non_thinking_max_tokens_upper_bound"):
            arguments.count(name, getattr(self, name), 2**32 - 1)
        if not 1 <= arguments.count("max_choices", self.max_choices) <= 255:
            raise ValueError(f"max_choices={self.max_choices} is outside 1..255")
        given: Any = self.shared_model_versions
        arguments.record("model_versions_by_name", given, dict)
        versions: dict[Any, Any] = dict(given)
        for model, version in versions.items():
            arguments.text("model_versions_by_name", model)
            arguments.record("model_versions_by_name", version, ModelVersion)
        object.__setattr__(self, "shared_model_versions", versions)

    @property
    def model_versions_by_name(self) -> dict[str, ModelVersion]:
        """The accepted model names and the versions they stand for, as a new dict."""
        return dict(self.shared_model_versions)

    def with_default_thinking_mode(self, default_thinking_mode: bool) -> ConversionOptions:
        """These options with another default thinking mode."""
        return dataclasses.replace(self, default_thinking_mode=default_thinking_mode)

    def with_reasoning_content_behavior(
        self, reasoning_content_behavior: ReasoningContentBehavior
    ) -> ConversionOptions:
        """These options with another treatment of missing reasoning."""
        return dataclasses.replace(self, reasoning_content_behavior=reasoning_content_behavior)

    def with_responses_web_search(
        self, responses_web_search: WebSearchBehavior
    ) -> ConversionOptions:
        """These options with another treatment of web search in Responses."""
        return dataclasses.replace(self, responses_web_search=responses_web_search)

    def with_messages_web_search(self, messages_web_search: WebSearchBehavior) -> ConversionOptions:
        """These options with another treatment of web search in Messages."""
        return dataclasses.replace(self, messages_web_search=messages_web_search)

    def with_special_tokens(self, special_tokens: SpecialTokens) -> ConversionOptions:
        """These options with other spellings of the control tokens."""
        return dataclasses.replace(self, special_tokens=special_tokens)

    def with_model_alias(self, model: str, model_version: ModelVersion) -> ConversionOptions:
        """These options with one more model name, or another version for a known one."""
        arguments.text("model", model)
        arguments.record("model_version", model_version, ModelVersion)
        return dataclasses.replace(
            self, shared_model_versions={**self.shared_model_versions, model: model_version}
        )

    def with_model_versions_by_name(
        self, model_versions_by_name: dict[str, ModelVersion]
    ) -> ConversionOptions:
        """These options with another table of model names; the default names go."""
        return dataclasses.replace(self, shared_model_versions=model_versions_by_name)

    def with_thinking_max_tokens_upper_bound(
        self, thinking_max_tokens_upper_bound: int
    ) -> ConversionOptions:
        """These options with another bound while thinking."""
        return dataclasses.replace(
            self, thinking_max_tokens_upper_bound=thinking_max_tokens_upper_bound
        )

    def with_non_thinking_max_tokens_upper_bound(
        self, non_thinking_max_tokens_upper_bound: int
    ) -> ConversionOptions:
        """These options with another bound without thinking."""
        return dataclasses.replace(
            self, non_thinking_max_tokens_upper_bound=non_thinking_max_tokens_upper_bound
        )

    def with_max_choices(self, max_choices: int) -> ConversionOptions:
        """These options with up to `max_choices` answers per Chat Completions request."""
        return dataclasses.replace(self, max_choices=max_choices)

    def with_response_store(self, response_store: ResponseStore | None) -> ConversionOptions:
        """These options with another store of responses, or with none."""
        return dataclasses.replace(self, response_store=response_store)

    def with_encrypted_content(
        self, encrypted_content: EncryptedContentBehavior
    ) -> ConversionOptions:
        """These options with another treatment of encrypted content."""
        return dataclasses.replace(self, encrypted_content=encrypted_content)


_KINDS: dict[str, type[Any]] = {
    "reasoning_content_behavior": ReasoningContentBehavior,
    "responses_web_search": WebSearchBehavior,
    "messages_web_search": WebSearchBehavior,
    "special_tokens": SpecialTokens,
    "encrypted_content": EncryptedContentBehavior,
}
