"""Chat Completions requests.

Decides how a request becomes a conversation, sampling values and parsing options, and in which
order its faults are found. Never renders a prompt and never runs a model. In: a request body.
Out: `ConversationRequest`, or `ConversionError`.
"""

from __future__ import annotations

from typing import Any

from ds_jax.recipe import chat_body, chat_events, format_rules, rules, tool_rules
from ds_jax.recipe.body import read_body
from ds_jax.recipe.chat_body import ChatBody, JsonSchemaFormat, PlainFormat, RegexFormat
from ds_jax.recipe.chat_events import ChatCompletionChunkGenerator, ChatReply
from ds_jax.recipe.chat_messages import convert_messages
from ds_jax.recipe.conversation import Conversation, Message, ToolDefinition
from ds_jax.recipe.options import ConversionOptions, ModelVersion
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.protocol_request import ProtocolRequest
from ds_jax.recipe.request import ConversationRequest, InferenceOptions, invalid_request
from ds_jax.recipe.rules import Thinking
from ds_jax.recipe.tool_rules import ActiveTools


class ChatCompletionRequest(ProtocolRequest[ChatBody]):
    """A Chat Completions request, as the client sent it.

    Args:
      body: JSON as bytes or str, or the same as Python values.

    Raises:
      ValueError: not JSON, or a field that is missing or has another type; its `path` says where.
      TypeError, OverflowError, RecursionError, UnicodeEncodeError: Python values JSON cannot hold.
    """

    __slots__ = ()

    def __init__(self, body: bytes | str | dict[str, Any]) -> None:
        super().__init__(read_body(body), chat_body.read_chat_body)

    def convert(self, options: ConversionOptions) -> ConversationRequest:
        """Converts the request and uses it up, even if it fails. Mutates itself.

        Args:
          options: what the operator allows.

        Raises:
          ConversionError: the request is not acceptable.
          RuntimeError: the request was converted already.
          TypeError: `options` are no `ConversionOptions`.
        """
        return _convert(self._taken(options), options)

    @staticmethod
    def chunk_generator(
        request: ConversationRequest, id: str, model: str
    ) -> ChatCompletionChunkGenerator:
        """The generator of the chunks of a converted request's answer.

        Args:
          request: a converted request.
          id: the id of the response.
          model: the model name the response reports.
        """
        return chat_events.generators(request, id, model)[0]

    @staticmethod
    def chunk_generators(
        request: ConversationRequest, id: str, model: str
    ) -> list[ChatCompletionChunkGenerator]:
        """One generator for each of the `n` answers; the chunk that ends last sums up the usage.

        Args:
          request: a converted request.
          id: the id of the response.
          model: the model name the response reports.
        """
        return chat_events.generators(request, id, model, request.inference_options.n)


def _convert(body: ChatBody, options: ConversionOptions) -> ConversationRequest:
    version = rules.model_version(body.model, options)
    tools = _declared_tools(body)
    if not body.messages:
        raise invalid_request("Empty input messages")
    thinking = rules.thinking(
        None if body.thinking is None else body.thinking.type != "disabled",
        body.reasoning_effort,
        options.default_thinking_mode,
    )
    messages = convert_messages(
        body.messages,
        images=version is ModelVersion.DeepseekV41Flash,
        image_token=options.special_tokens.image,
    )
    messages = rules.settle_reasoning(
        messages,
        thinking=thinking.on,
        declares_tools=bool(tools),
        options=options,
        field="reasoning_content",
    )
    _check_prefix_place(messages)
    json_object = isinstance(body.response_format, PlainFormat) and body.response_format.json_object
    if json_object and not rules.mentions_json(messages):
        raise invalid_request(
            "Prompt must contain the word 'json' in some form to use 'response_format' of type"
            " 'json_object'."
        )
    choice = body.tool_choice or "auto"
    if choice != "none":
        tools = tool_rules.prepare(tools)
    active = tool_rules.choose(tools, choice, thinking=thinking.on)
    _check_prefix_use(messages, json_object=json_object, declares_tools=bool(body.tools))
    stop = _stop_strings(body)
    if body.stream_options is not None and not body.stream:
        raise invalid_request("stream_options should be set along with stream = true")
    schema, strict_form = _response_schema(body.response_format)
    tool_rules.check_strict(active.tools, has_response_format=body.response_format is not None)
    _check_values(body, thinking.on, options)
    regex = body.response_format.regex if isinstance(body.response_format, RegexFormat) else None
    conversation = Conversation(
        messages,
        thinking_mode=thinking.on,
        tools=active.tools,
        tool_choice=active.choice,
        reasoning_effort=thinking.effort,
        response_format="json_object" if json_object else "text",
        response_schema=schema,
        response_regex=regex,
    )
    return ConversationRequest(
        conversation,
        version,
        inference_options=_inference_options(
            body, version, thinking, active, conversation, strict_form
        ),
        parsing_options=ParsingOptions(
            parse_tool_calls=active.active,
            starts_in_tool_calls=active.active and active.choice == "required",
            parse_json_output=json_object,
            thinking_initial_stage=_initial_stage(messages[-1:], thinking.on),
            stop_sequences=stop,
            special_tokens=options.special_tokens,
        ),
        stream=bool(body.stream),
        _reply=ChatReply(
            include_usage=body.stream_options is not None
            and bool(body.stream_options.include_usage)
        ),
    )


def _declared_tools(body: ChatBody) -> list[ToolDefinition]:
    tools: list[ToolDefinition] = []
    for index, entry in enumerate(body.tools or ()):
        function = entry.function
        tool_rules.check_name(function.name, f"tools[{index}].function.name")
        tools.append(
            ToolDefinition.sharing(
                function.name, function.description, function.parameters, function.strict
            )
        )
    return tools


def _check_prefix_place(messages: list[Message]) -> None:
    if any(message.prefix for message in messages[:-1]):
        raise invalid_request(
            "Invalid completion message: prefix set true with message which is not final message"
            " or message role is not assistant"
        )


def _check_prefix_use(messages: list[Message], *, json_object: bool, declares_tools: bool) -> None:
    if not messages or not messages[-1].prefix:
        return
    if json_object:
        raise invalid_request("response_format json_object should not be used with prefix")
    if declares_tools or any(message.tool_calls for message in messages):
        raise invalid_request("Function call should not be used with prefix")


def _stop_strings(body: ChatBody) -> list[str]:
    if isinstance(body.stop, str):
        rules.check_stop_strings([body.stop], alone=True)
        return [body.stop]
    rules.check_stop_strings(body.stop)
    return body.stop or []


def _response_schema(response_format: chat_body.ResponseFormat | None) -> tuple[Any, Any]:
    """The schema as the prompt shows it, and as constrained decoding takes it."""
    if not isinstance(response_format, JsonSchemaFormat):
        return None, None
    given = response_format.json_schema
    return given.schema, format_rules.enforced_schema(given.schema, given.strict)


def _check_values(body: ChatBody, thinking: bool, options: ConversionOptions) -> None:
    """Refuses numbers outside their ranges."""
    if body.n is not None and not 1 <= body.n <= options.max_choices:
        raise invalid_request(
            "Invalid n value (currently only n = 1 is supported)"
            if options.max_choices == 1
            else f"Invalid n value, the valid range of n is [1, {options.max_choices}]"
        )
    rules.check_range("presence_penalty", body.presence_penalty, -2, 2)
    rules.check_range("frequency_penalty", body.frequency_penalty, -2, 2)
    rules.check_temperature(body.temperature)
    rules.check_top_p(body.top_p)
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid_request(
            "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs"
            " is used."
        )
    rules.check_top_logprobs(body.top_logprobs)
    rules.check_max_tokens(body.max_tokens, thinking, options)
    rules.check_seed(body.seed)


def _inference_options(
    body: ChatBody,
    version: ModelVersion,
    thinking: Thinking,
    active: ActiveTools,
    conversation: Conversation,
    response_schema: Any,
) -> InferenceOptions:
    return InferenceOptions(
        max_tokens=body.max_tokens,
        temperature=rules.temperature(body.temperature, thinking.on),
        top_p=rules.top_p(body.top_p, version, thinking=thinking.on, tools_active=active.active),
        logprobs=bool(body.logprobs),
        top_logprobs=body.top_logprobs,
        seed=body.seed,
        output_constraint=tool_rules.output_constraint(conversation, response_schema),
        n=1 if body.n is None else body.n,
    )


def _initial_stage(last: list[Message], thinking: bool) -> ThinkingInitialStage | None:
    if not thinking:
        return None
    if last and last[0].prefix:
        if last[0].content:
            return ThinkingInitialStage.ContentContinuation
        if last[0].reasoning_content:
            return ThinkingInitialStage.ReasoningContinuation
    return ThinkingInitialStage.ReasoningStart
