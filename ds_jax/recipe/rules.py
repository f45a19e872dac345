"""Rules that the conversions of all three protocols share.

Decides model names, thinking and effort, sampling values and their ranges, stop strings, reasoning
in old turns, and the result's common parts. Never reads a body and never orders the checks: a
conversion calls these in its own order. In: decoded fields. Out: resolved values, or
`ConversionError`.

Tools are `tool_rules`; images are `image_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ds_jax.recipe.conversation import AssistantMessage, Message, ReasoningEffort
from ds_jax.recipe.decode import f32
from ds_jax.recipe.options import ConversionOptions, ModelVersion, ReasoningContentBehavior
from ds_jax.recipe.request import invalid_request

EFFORT_WORDS: dict[str, ReasoningEffort | None] = {
    "none": None,
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "xhigh",
    "ultra": "max",
    "max": "max",
}
"""What each word of a request means; None turns thinking off."""

BILLING_HEADER = "x-anthropic-billing-header"
"""How text begins that a client adds for its own accounting."""

MAX_STOP_STRINGS = 16
MAX_TOP_LOGPROBS = 20
_TOP_P = f32(0.95)
# Characters with the Unicode property White_Space; str.lstrip() would take four more.
_WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def model_version(model: str, options: ConversionOptions) -> ModelVersion:
    """The version that a model name stands for.

    Raises:
      ConversionError: the name is not in the table of the options.
    """
    versions = options.shared_model_versions
    version = versions.get(model)
    if version is None:
        names = ", ".join(sorted(versions, key=lambda name: name.encode()))
        raise invalid_request(f"The supported API model names are {names}, but you passed {model}.")
    return version


class Thinking(NamedTuple):
    """Whether the model thinks, and how hard; the effort is None when it does not."""

    on: bool
    effort: ReasoningEffort | None


def thinking(enabled: bool | None, effort_word: str | None, default: bool) -> Thinking:
    """Resolves the two ways in which a request can speak about thinking.

    Args:
      enabled: the request's own switch, which decides alone when it is there.
      effort_word: one of `EFFORT_WORDS`; without a switch `none` means off and the others on.
      default: when the request says nothing.
    """
    effort = None if effort_word is None else EFFORT_WORDS[effort_word]
    if enabled is None:
        enabled = default if effort_word is None else effort is not None
    return Thinking(True, effort or "high") if enabled else Thinking(False, None)


# Ranges --------------------------------------------------------------------------------------


def check_range(name: str, value: float | None, low: float, high: float) -> None:
    """Refuses a value outside [low, high], such as a penalty or a temperature."""
    if value is not None and not low <= value <= high:
        raise _out_of_range(name, f"[{low}, {high}]")


def check_temperature(value: float | None) -> None:
    """Refuses a temperature outside [0, 2]."""
    check_range("temperature", value, 0, 2)


def check_top_p(value: float | None) -> None:
    """Refuses a top_p outside (0, 1]."""
    if value is not None and not 0 < value <= 1:
        raise _out_of_range("top_p", "(0, 1.0]")


def check_top_logprobs(value: int | None) -> None:
    """Refuses more alternatives than there may be."""
    if value is not None and value > MAX_TOP_LOGPROBS:
        raise _out_of_range("top_logprobs", f"[0, {MAX_TOP_LOGPROBS}].")


def check_seed(value: int | None) -> None:
    """Refuses a seed that does not fit a signed 64-bit number."""
    if value is not None and value >= 2**63:
        raise _out_of_range("seed", "[0, 2^63)")


def check_max_tokens(value: int | None, thinking: bool, options: ConversionOptions) -> None:
    """Refuses a `max_tokens` of 0 or above the operator's bound."""
    bound = max_tokens_bound(thinking, options)
    if value is not None and not 1 <= value <= bound:
        raise _out_of_range("max_tokens", f"[1, {bound}]")


def max_tokens_bound(thinking: bool, options: ConversionOptions) -> int:
    """The operator's bound on `max_tokens`, in tokens."""
    if thinking:
        return options.thinking_max_tokens_upper_bound
    return options.non_thinking_max_tokens_upper_bound


def _out_of_range(name: str, valid: str) -> Exception:
    return invalid_request(f"Invalid {name} value, the valid range of {name} is {valid}")


def check_stop_strings(stop: Sequence[str] | None, *, alone: bool = False) -> None:
    """Refuses empty stop strings and too many of them.

    Args:
      stop: the strings.
      alone: whether the request gave one string and no list.
    """
    if stop is None:
        return
    if len(stop) > MAX_STOP_STRINGS:
        raise invalid_request(f"Stop string array too long: {len(stop)}")
    for index, each in enumerate(stop):
        if not each:
            raise empty_string("stop" if alone else f"stop[{index}]")


def empty_string(path: str) -> Exception:
    """The refusal of an empty string where one character is the least."""
    return invalid_request(
        f"Invalid '{path}': empty string. Expected a string with minimum length 1, but got an"
        " empty string instead."
    )


# Sampling ------------------------------------------------------------------------------------


def temperature(requested: float | None, thinking: bool) -> float:
    """The temperature to sample with: 1 while thinking, else as requested or 1."""
    return 1.0 if thinking or requested is None else requested


def top_p(
    requested: float | None, version: ModelVersion, *, thinking: bool, tools_active: bool
) -> float:
    """The top_p to sample with, as the version wants it.

    | version | thinking | not thinking |
    |---|---|---|
    | V4.1 | as requested or 1, at least 0.95 | 1 |
    | V4 | 0.95 with active tools, else 1 | as requested or 1 |
    """
    given = 1.0 if requested is None else requested
    if version is ModelVersion.DeepseekV41Flash:
        return max(given, _TOP_P) if thinking else 1.0
    if thinking:
        return _TOP_P if tools_active else 1.0
    return given


# Texts and history ---------------------------------------------------------------------------


def mentions_json(messages: Iterable[Message]) -> bool:
    """Whether the content of some message has the word json, in any case."""
    return any("json" in message.content.lower() for message in messages)


def without_billing_header(text: str) -> str:
    """Text without its first line's billing header; text that has none stays as it is.

    Keeps everything from `You are` if the first line has that, else what follows the line.
    """
    if not text.startswith(BILLING_HEADER):
        return text
    line, _, rest = text.partition("\n")
    start = line.find("You are")
    return text[start:] if start >= 0 else rest.lstrip(_WHITE_SPACE)


def settle_reasoning(
    messages: Sequence[Message],
    *,
    thinking: bool,
    declares_tools: bool,
    options: ConversionOptions,
    field: str,
) -> list[Message]:
    """Old turns with the reasoning that the prompt needs.

    Args:
      messages: the converted messages; an assistant's `reasoning_content` is None where the request
        gave none.
      thinking: whether the model thinks. If not, all reasoning is dropped; if so, missing reasoning
        becomes an empty string.
      declares_tools: whether the request has tools, active or not.
      options: whether missing reasoning is refused. That concerns the assistant messages after the
        last user message: those with tool calls, or all if tools are declared. A call id whose
        characters 7 to 10 are `_ET_` stands for a turn that had no reasoning.
      field: what the request's reasoning field is called.

    Returns:
      A new list; unchanged messages are the same objects.

    Raises:
      ConversionError: reasoning is missing where it has to come back.
    """
    if thinking and options.reasoning_content_behavior is ReasoningContentBehavior.Reject:
        for message in reversed(messages):
            if message.role == "user":
                break
            if message.role == "assistant" and _lacks_reasoning(message, declares_tools):
                raise invalid_request(
                    f"The `{field}` in the thinking mode must be passed back to the API."
                )
    return [_settled(message, thinking) for message in messages]


def _lacks_reasoning(message: Message, declares_tools: bool) -> bool:
    calls = message.tool_calls or []
    if message.reasoning_content is not None or not (calls or declares_tools):
        return False
    return not any(call.id[7:11] == "_ET_" for call in calls)


def _settled(message: Message, thinking: bool) -> Message:
    if message.role != "assistant" or (message.reasoning_content is not None) == thinking:
        return message
    return AssistantMessage(
        message.content, "" if thinking else None, message.tool_calls, message.prefix
    )
