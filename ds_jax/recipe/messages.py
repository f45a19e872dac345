"""Anthropic Messages requests as conversations.

Decides in which order a request is checked and what its fields become. Never decides where blocks
may stand (messages_blocks), and never makes events. In: a request body. Out: a
`ConversationRequest`.

The last assistant message is a finished turn, not the beginning of the answer. `top_k`, the budget
of thinking and `disable_parallel_tool_use` are accepted and not used; tool choice `any` means
`auto`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds_jax.recipe import (
    messages_blocks,
    messages_body,
    messages_content,
    rules,
    tool_rules,
)
from ds_jax.recipe.body import read_body
from ds_jax.recipe.conversation import Conversation
from ds_jax.recipe.message import Message, SystemMessage
from ds_jax.recipe.messages_events import MessagesChunkGenerator, generator
from ds_jax.recipe.options import ConversionOptions, ModelVersion, WebSearchBehavior
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.protocol_request import ProtocolRequest
from ds_jax.recipe.request import ConversationRequest, InferenceOptions, invalid_request
from ds_jax.recipe.tool import ToolDefinition

_WEB_SEARCH = "web_search"


class MessagesRequest(ProtocolRequest[messages_body.Body]):
    """One Messages request; `convert` uses it up.

    Args:
      body: JSON text as bytes or str, or a dict. Unknown fields are ignored.

    Raises:
      ValueError: not JSON (`invalid JSON request: ...`) or of another shape (`invalid request body:
        ...`).
      TypeError, OverflowError, RecursionError, UnicodeEncodeError: a dict holds what JSON cannot.
    """

    __slots__ = ()

    def __init__(self, body: bytes | str | dict[str, object]) -> None:
        super().__init__(read_body(body), messages_body.read)

    def convert(self, options: ConversionOptions) -> ConversationRequest:
        """The conversation, and how to sample and parse its answer.

        Mutates: the request is used up, even if this fails.

        Args:
          options: names of models, defaults, bounds.

        Returns:
          The converted request.

        Raises:
          ConversionError: the request is not acceptable; status 400 and the error body.
          RuntimeError: the request was used up before.
          TypeError: `options` are no `ConversionOptions`; then it is not used up.
        """
        return _convert(self._taken(options), options)

    @staticmethod
    def chunk_generator(
        request: ConversationRequest, id: str, model: str
    ) -> MessagesChunkGenerator:
        """The generator of the answer's events.

        Args:
          request: a converted request.
          id: of the response.
          model: its name in the response.
        """
        return generator(request, id, model)


def _convert(body: messages_body.Body, options: ConversionOptions) -> ConversationRequest:
    version = rules.model_version(body.model, options)
    thinking = _thinking(body, options)
    dropped, tools = _declared(body.tools or (), version, options)
    messages = _messages(body, tools, version, options)
    messages = rules.settle_reasoning(
        messages,
        thinking=thinking.on,
        declares_tools=bool(body.tools),
        options=options,
        field="content[].thinking",
    )
    chosen = _choose(body, dropped, tools, thinking.on)
    rules.check_stop_strings(body.stop_sequences)
    rules.check_temperature(body.temperature)
    rules.check_top_p(body.top_p)
    max_tokens = _max_tokens(body.max_tokens, thinking.on, options)
    conversation = Conversation(
        tool_rules.reduce_announcements(messages, chosen.tools),
        thinking_mode=thinking.on,
        tools=chosen.tools,
        tool_choice=chosen.choice,
        reasoning_effort=thinking.effort,
    )
    return ConversationRequest(
        conversation,
        version,
        inference_options=InferenceOptions(
            max_tokens=max_tokens,
            temperature=rules.temperature(body.temperature, thinking.on),
            top_p=rules.top_p(
                body.top_p, version, thinking=thinking.on, tools_active=chosen.active
            ),
            output_constraint=tool_rules.output_constraint(conversation),
        ),
        parsing_options=ParsingOptions(
            parse_tool_calls=chosen.active,
            starts_in_tool_calls=chosen.active and chosen.choice == "required",
            thinking_initial_stage=ThinkingInitialStage.ReasoningStart if thinking.on else None,
            stop_sequences=body.stop_sequences,
            special_tokens=options.special_tokens,
        ),
        stream=bool(body.stream),
    )


def _thinking(body: messages_body.Body, options: ConversionOptions) -> rules.Thinking:
    enabled = None if body.thinking is None else body.thinking.type != "disabled"
    effort = None if body.output_config is None else body.output_config.effort
    return rules.thinking(enabled, effort, options.default_thinking_mode)


def _declared(
    tools: Sequence[messages_body.Tool], version: ModelVersion, options: ConversionOptions
) -> tuple[set[str], list[ToolDefinition]]:
    """Names of the web searches left out, and the other tools."""
    knows_later_tools = version is ModelVersion.DeepseekV41Flash
    dropped: set[str] = set()
    declared: list[ToolDefinition] = []
    for index, tool in enumerate(tools):
        if isinstance(tool, messages_body.FunctionTool):
            tool_rules.check_name(tool.name, f"tools[{index}].name")
            defer_loading = tool.defer_loading and knows_later_tools
            declared.append(
                ToolDefinition.sharing(
                    tool.name, tool.description, tool.input_schema, None, defer_loading
                )
            )
        elif tool.type.startswith(_WEB_SEARCH) and _drops_web_search(options):
            dropped.add(_WEB_SEARCH if tool.name is None else tool.name)
        else:
            raise invalid_request(f"tools[{index}]: server tools are not supported")
    if declared and all(tool.defer_loading for tool in declared):
        raise invalid_request(
            "tools: at least one tool must have defer_loading=false. All tools cannot be deferred."
        )
    return dropped, declared


def _drops_web_search(options: ConversionOptions) -> bool:
    return options.messages_web_search is WebSearchBehavior.Drop


def _messages(
    body: messages_body.Body,
    tools: Sequence[ToolDefinition],
    version: ModelVersion,
    options: ConversionOptions,
) -> list[Message]:
    if not body.messages:
        raise invalid_request("messages: at least one message is required")
    is_v41 = version is ModelVersion.DeepseekV41Flash
    setting = messages_blocks.Setting(
        image_token=options.special_tokens.image if is_v41 else None,
        tools={tool.name: tool for tool in reversed(tools)},
        drop_server_blocks=_drops_web_search(options),
    )
    converted = messages_blocks.convert(body.messages, setting)
    if body.system is None:
        return converted
    return [SystemMessage(_system_text(body.system)), *converted]


def _system_text(system: str | Sequence[messages_content.Text]) -> str:
    if isinstance(system, str):
        return system
    texts = [block.text for block in system]
    if texts and texts[0].startswith(rules.BILLING_HEADER):
        del texts[0]
    return "\n\n".join(texts)


def _choose(
    body: messages_body.Body, dropped: set[str], tools: list[ToolDefinition], thinking: bool
) -> tool_rules.ActiveTools:
    """The tools on offer; a choice of a web search that was left out counts as no choice."""
    match body.tool_choice:
        case messages_body.NoneChoice():
            return tool_rules.choose(tools, "none", thinking=thinking)
        case messages_body.ToolChoice(name=name) if name not in dropped:
            tools = tool_rules.prepare(tools, strict=False, may_lack_parameters=False)
            if dropped and not tools:
                raise tool_rules.unknown_tool(name)
            return tool_rules.choose(tools, tool_rules.NamedTool(name), thinking=thinking)
        case _:
            tools = tool_rules.prepare(tools, strict=False, may_lack_parameters=False)
            return tool_rules.choose(tools, "auto", thinking=thinking)


def _max_tokens(requested: int | None, thinking: bool, options: ConversionOptions) -> int | None:
    """As requested, at most the operator's bound.

    Raises:
      ConversionError: 0.
    """
    if requested is None:
        return None
    bound = rules.max_tokens_bound(thinking, options)
    if requested == 0:
        rules.check_max_tokens(requested, thinking, options)
    return min(requested, bound)
