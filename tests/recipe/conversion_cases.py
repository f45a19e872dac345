"""Conversion cases: a request body and options through a library, and what came out as plain JSON.

`library` is `ds_jax.recipe` or any module with the same public names, so the same function replays
recorded cases and compares two libraries with each other.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

REQUESTS = {
    "chat": "ChatCompletionRequest",
    "responses": "ResponsesRequest",
    "messages": "MessagesRequest",
}
_VERSIONS = {"v4": "DeepseekV4Pro", "v41": "DeepseekV41Flash"}
_STAGES = {
    "ReasoningStart": "reasoning_start",
    "ReasoningContinuation": "reasoning_continuation",
    "ContentContinuation": "content_continuation",
}


def run(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """Converts one request.

    Args:
      library: whose public names to use.
      case: `protocol`; `body`, `body_text` or `body_hex`; optionally `options`, `render`,
        `want_namespace_map`, `resolve_max_tokens`.

    Returns:
      `body_error` or `error` or `ok`, as the recorded cases hold it.
    """
    try:
        request = getattr(library, REQUESTS[case["protocol"]])(_body(case))
    except ValueError as error:
        return {"body_error": str(error)}
    options = conversion_options(library, case.get("options", {}))
    outcome: dict[str, Any] = {}
    if case["protocol"] == "responses" and case.get("want_namespace_map"):
        try:
            names = request.namespace_tool_map(options)
            outcome["namespace_tool_map"] = {key: list(names[key]) for key in sorted(names)}
        except library.ConversionError as error:
            outcome["namespace_tool_map"] = {"error": _error(error)}
    try:
        converted = request.convert(options)
    except library.ConversionError as error:
        return {**outcome, "error": _error(error)}
    outcome["ok"] = _converted(library, converted, case)
    if "resolve_max_tokens" in case:
        outcome["resolve_max_tokens"] = [
            _resolve(library, converted, *pair) for pair in case["resolve_max_tokens"]
        ]
    return outcome


def comparable(outcome: dict[str, Any], *, library_text: bool = False) -> str:
    """An outcome as text: equal texts mean equal outcomes.

    Args:
      outcome: of `run`, or recorded.
      library_text: whether the wording after the first colon comes from a JSON or JSON Schema
        library and does not count.
    """
    if library_text and "body_error" in outcome:
        return outcome["body_error"].split(": ", 1)[0]
    if library_text and "error" in outcome:
        error = json.loads(outcome["error"]["body"])["error"]
        return f"{outcome['error']['status']} {error['message'].split(': ', 1)[0]}"
    return json.dumps(outcome, ensure_ascii=False, sort_keys=False)


def conversion_options(library: ModuleType, given: dict[str, Any]) -> Any:
    """The conversion options of a case."""
    plain = (
        "default_thinking_mode",
        "thinking_max_tokens_upper_bound",
        "non_thinking_max_tokens_upper_bound",
    )
    named: dict[str, Any] = {name: given[name] for name in plain if name in given}
    if "reasoning_content_behavior" in given:
        behavior = library.ReasoningContentBehavior
        named["reasoning_content_behavior"] = (
            behavior.FillEmpty
            if given["reasoning_content_behavior"] == "fill_empty"
            else behavior.Reject
        )
    for name in ("responses_web_search", "messages_web_search"):
        if name in given:
            behavior = library.WebSearchBehavior
            named[name] = behavior.Drop if given[name] == "drop" else behavior.Reject
    options = library.ConversionOptions(**named)
    if "model_versions_by_name" in given:
        versions = given["model_versions_by_name"].items()
        options = options.with_model_versions_by_name(
            {name: _version(library, version) for name, version in versions}
        )
    for name, version in given.get("model_aliases", {}).items():
        options = options.with_model_alias(name, _version(library, version))
    if "special_tokens" in given:
        options = options.with_special_tokens(library.SpecialTokens(**given["special_tokens"]))
    return options


def _body(case: dict[str, Any]) -> Any:
    if "body_text" in case:
        return case["body_text"]
    if "body_hex" in case:
        return bytes.fromhex(case["body_hex"])
    return case["body"]


def _version(library: ModuleType, name: str) -> Any:
    return getattr(library.ModelVersion, _VERSIONS[name])


def _error(error: Any) -> dict[str, Any]:
    return {"status": error.status_code, "body": error.body}


def _resolve(library: ModuleType, converted: Any, prompt_tokens: int, limit: int) -> Any:
    try:
        return converted.resolve_max_tokens(prompt_tokens, limit)
    except library.ConversionError as error:
        return _error(error)


def _converted(library: ModuleType, converted: Any, case: dict[str, Any]) -> dict[str, Any]:
    conversation, inference = converted.conversation, converted.inference_options
    parsing, constraint = converted.parsing_options, inference.output_constraint
    stage = parsing.thinking_initial_stage
    version = "v4" if converted.model_version == library.ModelVersion.DeepseekV4Pro else "v41"
    result: dict[str, Any] = {
        "model_version": version,
        "stream": converted.stream,
        "conversation": {
            "messages": [_message(message) for message in conversation.messages],
            "thinking_mode": conversation.thinking_mode,
            "tools": [_tool(tool) for tool in conversation.tools],
            "tool_choice": conversation.tool_choice,
            "reasoning_effort": conversation.reasoning_effort,
            "response_format": conversation.response_format,
            "response_schema": conversation.response_schema,
            "response_regex": conversation.response_regex,
        },
        "inference": {
            "max_tokens": inference.max_tokens,
            "temperature": inference.temperature,
            "top_p": inference.top_p,
            "logprobs": inference.logprobs,
            "top_logprobs": inference.top_logprobs,
            "seed": inference.seed,
            "output_constraint": constraint
            and {"kind": constraint.kind, "schema": constraint.schema},
        },
        "parsing": {
            "parse_tool_calls": parsing.parse_tool_calls,
            "starts_in_tool_calls": parsing.starts_in_tool_calls,
            "parse_json_output": parsing.parse_json_output,
            "thinking_initial_stage": stage and _STAGES[repr(stage).rsplit(".")[-1]],
            "stop_sequences": parsing.stop_sequences,
        },
    }
    if case.get("render"):
        name = "DeepseekV4Encoding" if version == "v4" else "DeepseekV41Encoding"
        encoding = getattr(library, name)()
        if special_tokens := case.get("options", {}).get("special_tokens"):
            encoding = encoding.with_special_tokens(library.SpecialTokens(**special_tokens))
        rendered = encoding.render_conversation(conversation)
        result["rendered"] = {
            "prompt": rendered.prompt,
            "special_ranges": [list(span) for span in rendered.special_ranges],
            "image_sources": [_source(source) for source in rendered.image_sources],
        }
    return result


def _message(message: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        calls = message.tool_calls
        shown["reasoning_content"] = message.reasoning_content
        shown["tool_calls"] = calls and [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
        ]
        shown["prefix"] = message.prefix
    if message.role == "tool":
        shown["tool_call_id"] = message.tool_call_id
    if message.role in ("system", "user", "tool"):
        shown["image_sources"] = [_source(source) for source in message.image_sources]
    if message.role == "system":
        tools = message.tools
        shown["tools"] = None if tools is None else [_tool(tool) for tool in tools]
    return shown


def _tool(tool: Any) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict", "defer_loading")
    return {name: getattr(tool, name) for name in names}


def _source(source: Any) -> dict[str, Any]:
    return {name: getattr(source, name) for name in ("kind", "detail", "data_url", "url", "path")}
