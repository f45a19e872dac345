"""Requests of the OpenAI Responses API.

Decides the order of the checks and how settings become a converted request. Never renders, samples
or answers. In: a request body and conversion options. Out: `ConversationRequest`.

Beyond deepseek-recipe, and only where the options ask for it: `previous_response_id` and `store`
are obeyed (with a response store; without one they are ignored), and items that come only in
encrypted form are refused (by default they are ignored, like every other field nobody can read).
"""

from __future__ import annotations

from typing import Any

from ds_jax.recipe import (
    arguments,
    format_rules,
    responses_history,
    responses_tools,
    rules,
    tool_rules,
)
from ds_jax.recipe.body import read_body as read_json
from ds_jax.recipe.conversation import Conversation
from ds_jax.recipe.message import Message, SystemMessage, UserMessage
from ds_jax.recipe.options import ConversionOptions, ModelVersion, WebSearchBehavior
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.protocol_request import ProtocolRequest
from ds_jax.recipe.request import ConversationRequest, InferenceOptions, invalid_request
from ds_jax.recipe.responses_body import (
    Body,
    ChosenWebSearch,
    JsonText,
    PlainText,
    Reasoning,
    SchemaText,
    TextConfig,
    TextFormat,
    read_body,
)
from ds_jax.recipe.responses_declared import UnknownTool
from ds_jax.recipe.responses_generator import ResponsesChunkGenerator
from ds_jax.recipe.responses_history import History
from ds_jax.recipe.responses_input import Item, SearchOutputItem
from ds_jax.recipe.responses_messages import MessageBuilder
from ds_jax.recipe.responses_reply import ResponsesEcho, ResponsesReply
from ds_jax.recipe.responses_tools import Offer, ToolNames
from ds_jax.recipe.rules import Thinking
from ds_jax.recipe.tool_rules import ActiveTools, NamedTool


class ResponsesRequest(ProtocolRequest[Body]):
    """A Responses request; converting it uses it up, even if that fails.

    Args:
      body: JSON as bytes or text, or the same as Python values.

    Raises:
      ValueError: no JSON (`invalid JSON request: ...`), or JSON of another shape
        (`invalid request body: ...`).
      TypeError, OverflowError, RecursionError, UnicodeEncodeError: Python values that JSON cannot
        hold.
    """

    __slots__ = ("_raw",)

    def __init__(self, body: bytes | str | dict[str, Any]) -> None:
        self._raw: Any = read_json(body)
        super().__init__(self._raw, read_body)

    def namespace_tool_map(self, options: ConversionOptions) -> dict[str, tuple[str, str]]:
        """The functions of the declared namespaces.

        Args:
          options: those of the conversion.

        Returns:
          Name in the prompt -> (namespace, function).

        Raises:
          ConversionError: an unknown model or a name that is no tool name.
          RuntimeError: the request was converted before.
          TypeError: `options` are no `ConversionOptions`.
        """
        arguments.record("options", options, ConversionOptions)
        body = self._unused()
        version = rules.model_version(body.model, options)
        tools = body.tools or []
        responses_tools.check_names(tools, "tools")
        names = ToolNames(version, tools)
        responses_tools.definitions(tools, names, version)
        return names.shown

    def echo(self) -> ResponsesEcho:
        """The settings that responses repeat.

        Raises:
          RuntimeError: the request was converted before.
        """
        return _echo(self._unused())

    def convert(self, options: ConversionOptions) -> ConversationRequest:
        """What to say to the model, how to sample, and how to read the answer.

        Mutates: the request is used up.

        Args:
          options: the operator's decisions.

        Raises:
          ConversionError: the request cannot be converted.
          RuntimeError: it was converted before.
          TypeError: `options` are no `ConversionOptions`; then it is not used up.
        """
        return _convert(self._taken(options), self._raw, options)

    @staticmethod
    def chunk_generator(
        request: ConversationRequest, id: str, model: str
    ) -> ResponsesChunkGenerator:
        """The maker of the events of one response.

        Args:
          request: the converted request.
          id: id of the response.
          model: name of the model that answers.
        """
        arguments.record("request", request, ConversationRequest)
        reply = request._reply  # pyright: ignore[reportPrivateUsage]
        return ResponsesChunkGenerator(
            id,
            model,
            reply if isinstance(reply, ResponsesReply) else None,
            thinking_mode=request.conversation.thinking_mode,
        )


def _convert(body: Body, raw: Any, options: ConversionOptions) -> ConversationRequest:
    version = rules.model_version(body.model, options)
    effort = None if body.reasoning is None else body.reasoning.effort
    thinking = rules.thinking(None, effort, options.default_thinking_mode)
    text_format = PlainText() if body.text is None else body.text.format
    responses_tools.check(body.tools or [], "tools", options.responses_web_search)
    history = _check_input(body, raw, options)
    messages, offer = _messages(body, history, version, thinking, options)
    _check_choice(body, options)
    active = _active_tools(body, offer, thinking)
    _check_json_word(text_format, messages)
    schema, enforced_schema = None, None
    if isinstance(text_format, SchemaText):
        schema = text_format.schema
        enforced_schema = format_rules.enforced_schema(schema, text_format.strict)
    tool_rules.check_strict(
        active.tools, has_response_format=not isinstance(text_format, PlainText)
    )
    rules.check_temperature(body.temperature)
    rules.check_top_p(body.top_p)
    rules.check_top_logprobs(body.top_logprobs)
    rules.check_max_tokens(body.max_output_tokens, thinking.on, options)
    conversation = Conversation(
        tool_rules.reduce_announcements(messages, active.tools),
        thinking_mode=thinking.on,
        tools=active.tools,
        tool_choice=active.choice,
        reasoning_effort=thinking.effort,
        response_format="json_object" if isinstance(text_format, JsonText) else "text",
        response_schema=schema,
    )
    return ConversationRequest(
        conversation,
        version,
        inference_options=InferenceOptions(
            max_tokens=body.max_output_tokens,
            temperature=rules.temperature(body.temperature, thinking.on),
            top_p=rules.top_p(
                body.top_p, version, thinking=thinking.on, tools_active=active.active
            ),
            logprobs=body.top_logprobs is not None,
            top_logprobs=body.top_logprobs,
            output_constraint=tool_rules.output_constraint(conversation, enforced_schema),
        ),
        parsing_options=ParsingOptions(
            parse_tool_calls=active.active,
            starts_in_tool_calls=active.active and active.choice == "required",
            parse_json_output=isinstance(text_format, JsonText),
            thinking_initial_stage=ThinkingInitialStage.ReasoningStart if thinking.on else None,
            special_tokens=options.special_tokens,
        ),
        stream=bool(body.stream),
        _reply=_reply(body, offer, history),
    )


def _check_input(body: Body, raw: Any, options: ConversionOptions) -> History:
    """Refuses a request that says nothing; looks up the turns before it."""
    if body.input == []:
        raise invalid_request("Input items array must not be empty")
    history = responses_history.read(raw, options)
    if body.input is None and not body.instructions and not history.items:
        raise invalid_request("Either input or instructions must be provided")
    responses_history.check_encrypted(raw, options)
    return history


def _messages(
    body: Body,
    history: History,
    version: ModelVersion,
    thinking: Thinking,
    options: ConversionOptions,
) -> tuple[list[Message], Offer]:
    """The messages, and the tools they bring along.

    Items of earlier turns have negative indices, so that those of the request keep their own.
    """
    own = body.input if isinstance(body.input, list) else []
    items: list[tuple[int, Item]] = list(
        enumerate([*history.items, *own], start=-len(history.items))
    )
    outputs = [(index, item.tools) for index, item in items if isinstance(item, SearchOutputItem)]
    offer = responses_tools.offer(body.tools or [], outputs, version, options.responses_web_search)
    builder = MessageBuilder(version, options.special_tokens.image, offer.names, offer.found)
    for index, item in items:
        builder.add(index, item)
    messages = builder.finish()
    if body.instructions:
        messages.insert(0, SystemMessage(body.instructions))
    if isinstance(body.input, str):
        messages.append(UserMessage(body.input))
    messages = rules.settle_reasoning(
        messages,
        thinking=thinking.on,
        declares_tools=bool(offer.all),
        options=options,
        field="reasoning_text",
    )
    return messages, offer


def _check_choice(body: Body, options: ConversionOptions) -> None:
    by_server = isinstance(body.tool_choice, ChosenWebSearch)
    if by_server and options.responses_web_search is WebSearchBehavior.Reject:
        raise responses_tools.server_tools_refused()


def _active_tools(body: Body, offer: Offer, thinking: Thinking) -> ActiveTools:
    match body.tool_choice:
        case "none":
            return ActiveTools([], "none")
        case "required":
            choice = "required"
        case None | str() | ChosenWebSearch():
            choice = "auto"
        case named:
            choice = NamedTool(named.name)
    return tool_rules.choose(tool_rules.prepare(offer.all), choice, thinking=thinking.on)


def _check_json_word(text_format: TextFormat, messages: list[Message]) -> None:
    if isinstance(text_format, JsonText) and not rules.mentions_json(messages):
        raise invalid_request(
            "Response input messages must contain the word 'json' in some form to use"
            " 'text.format' of type 'json_object'."
        )


def _reply(body: Body, offer: Offer, history: History) -> ResponsesReply:
    return ResponsesReply(
        echo=_echo(body),
        namespace_tool_map=offer.names.shown,
        custom_tools=offer.custom,
        tool_search=any(map(responses_tools.searches_in_client, body.tools or [])),
        previous_response_id=history.previous_response_id,
        store=history.store,
        input_items=history.own_items,
    )


def _echo(body: Body) -> ResponsesEcho:
    reasoning = body.reasoning or Reasoning(None, None, None)
    text = body.text or TextConfig(PlainText(), None)
    choice = body.tool_choice or "auto"
    tools = [tool for tool in body.tools or [] if not isinstance(tool, UnknownTool)]
    return ResponsesEcho(
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_logprobs=body.top_logprobs or 0,
        user=body.user,
        reasoning={
            "effort": reasoning.effort,
            "summary": reasoning.summary or reasoning.generate_summary,
        },
        text={"format": text.format.to_json(), "verbosity": text.verbosity},
        tool_choice=choice if isinstance(choice, str) else choice.to_json(),
        tools=[tool.to_json() for tool in tools],
    )
