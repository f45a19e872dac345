"""The OpenAPI document.

Decides what it says of each endpoint: fields that count, their types and bounds, the forms of
answers and errors. Never checks a request. In: a service. Out: JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import ds_jax
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.service import Service

Json = dict[str, Any]
_TEXT: Json = {"type": "string"}
_FLAG: Json = {"type": "boolean"}
_ANY: Json = {"type": "object", "additionalProperties": True}
_LIST: Json = {"type": "array", "items": {"type": "object"}}
_IDS: Json = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _number(low: float, high: float) -> Json:
    return {"type": "number", "minimum": low, "maximum": high}


def _whole(low: int, high: int | None = None) -> Json:
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})}


def _either(*kinds: Json) -> Json:
    return {"anyOf": list(kinds)}


def _typed(*kinds: str) -> Json:
    return {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(kinds)}}}


_SAMPLING: Json = {
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "top_k": _whole(-1),
    "min_p": _number(0, 1),
    "repetition_penalty": _number(0.01, 100),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "logit_bias": {"type": "object", "additionalProperties": _number(-100, 100)},
    "seed": _whole(0, 2**63 - 1),
    "ignore_eos": _FLAG,
    "ebnf": {**_TEXT, "description": "A grammar in GBNF that the answer follows."},
    "cache_salt": {"type": "string", "minLength": 1, "maxLength": 1024},
    "priority": _whole(-1000, 1000),
    "deadline_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400},
    "stream": _FLAG,
    "user": _TEXT,
    "metadata": _ANY,
}
_WORD: Json = {"type": "string", "minLength": 1}
_STOP = _either(_WORD, {"type": "array", "items": _WORD, "maxItems": 16})
OPEN = frozenset(("/health", "/ready", "/version", "/metrics", "/load", "/openapi.json", "/"))
"""Paths without a key."""
_CHAT: Json = {
    **_SAMPLING,
    "messages": {
        "type": "array",
        "items": {"$ref": "#/components/schemas/ChatMessage"},
        "minItems": 1,
    },
    "max_tokens": _whole(1),
    "max_completion_tokens": _whole(1),
    "n": _whole(1, 255),
    "stop": _STOP,
    "logprobs": _FLAG,
    "top_logprobs": _whole(0, 20),
    "stream_options": {
        "type": "object",
        "properties": dict.fromkeys(
            ("include_usage", "continuous_usage_stats", "include_drafts"), _FLAG
        ),
    },
    "response_format": _typed("text", "json_object", "json_schema", "regex"),
    "tools": _LIST,
    "tool_choice": _either(_TEXT, _ANY),
    "parallel_tool_calls": _FLAG,
    "reasoning_effort": {
        "enum": ["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]
    },
    "thinking": _typed("enabled", "disabled", "adaptive"),
}
_COMPLETION: Json = {
    **_SAMPLING,
    "prompt": _either(_TEXT, _IDS, {"type": "array", "items": _either(_TEXT, _IDS)}),
    "max_tokens": _whole(1),
    "n": _whole(1, 255),
    "stop": _STOP,
    "logprobs": _whole(0, 20),
    "echo": _FLAG,
    "stream_options": {"type": "object", "properties": {"include_usage": _FLAG}},
}
_RESPONSE: Json = {
    **_SAMPLING,
    "input": _either(_TEXT, _LIST),
    "instructions": _TEXT,
    "max_output_tokens": _whole(1),
    "top_logprobs": _whole(0, 20),
    "tools": _LIST,
    "tool_choice": _either(_TEXT, _ANY),
    "reasoning": _ANY,
    "text": _ANY,
    "previous_response_id": _TEXT,
    "store": _FLAG,
}
_MESSAGE: Json = {
    **_SAMPLING,
    "messages": _LIST,
    "max_tokens": _whole(1),
    "system": _either(_TEXT, _LIST),
    "stop_sequences": {"type": "array", "items": _TEXT, "maxItems": 16},
    "tools": _LIST,
    "tool_choice": _ANY,
    "thinking": _typed("enabled", "disabled", "adaptive"),
}
_CACHE: Json = {"prompt": _either(_TEXT, _IDS), "messages": _LIST, "tenant": _TEXT}

# path: method, summary, fields of the body (None: no body), required ones, kind of answer
_TABLE: list[tuple[str, str, str, Json | None, list[str], str]] = [
    ("/v1/chat/completions", "post", "Chat Completions", _CHAT, ["model", "messages"], "events"),
    ("/v1/completions", "post", "Text completions", _COMPLETION, ["model", "prompt"], "events"),
    ("/v1/responses", "post", "Responses", _RESPONSE, ["model"], "events"),
    (
        *("/v1/messages", "post", "Messages", _MESSAGE),
        *(["model", "messages", "max_tokens"], "events"),
    ),
    (
        *("/v1/messages/count_tokens", "post", "Tokens of a Messages request", _MESSAGE),
        *(["model", "messages"], "json"),
    ),
    ("/v1/responses/{name}", "get", "A kept response", None, [], "json"),
    ("/v1/responses/{name}", "delete", "Forgets a kept response", None, [], "json"),
    ("/v1/responses/{name}/cancel", "post", "Ends a running response", None, [], "json"),
    ("/v1/responses/{name}/input_items", "get", "Items of a kept response", None, [], "json"),
    ("/v1/models", "get", "Served models", None, [], "json"),
    ("/v1/models/{name}", "get", "One served model", None, [], "json"),
    (
        *("/tokenize", "post", "Ids of a text or of messages"),
        *({"prompt": _TEXT, "messages": _LIST, "add_special_tokens": _FLAG}, [], "json"),
    ),
    ("/detokenize", "post", "Text of ids", {"tokens": _IDS}, ["tokens"], "json"),
    ("/prompt/explain", "post", "The rendered prompt", _CHAT, ["model", "messages"], "json"),
    ("/health", "get", "The process is alive", None, [], "json"),
    ("/ready", "get", "Requests may be sent here", None, [], "json"),
    ("/version", "get", "Version", None, [], "json"),
    ("/load", "get", "What is under way", None, [], "json"),
    ("/metrics", "get", "Prometheus metrics", None, [], "text"),
    ("/drain", "post", "Takes no more requests (admin)", {"resume": _FLAG}, [], "json"),
    (
        *("/abort_request", "post", "Ends requests (admin)"),
        *({"id": _TEXT, "all": _FLAG}, [], "json"),
    ),
    ("/server_info", "get", "Settings and numbers (admin)", None, [], "json"),
    ("/cache/explain", "post", "Why a prompt is not cached (admin)", _CACHE, [], "json"),
]


def document(service: Service) -> Json:
    """The document, as JSON values."""
    paths: Json = {}
    for path, method, summary, fields, required, kind in _TABLE:
        names = list(service.settings.models)
        paths.setdefault(path, {})[method] = _operation(
            path, method, summary, fields, required, kind, names
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "ds_jax", "version": ds_jax.__version__},
        "paths": paths,
        "security": [{"bearer": []}, {"header": []}],
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {
                "ChatMessage": {
                    "type": "object",
                    "required": ["role"],
                    "properties": {
                        "role": {
                            "enum": [
                                *("system", "developer", "user", "assistant", "tool"),
                                "latest_reminder",
                            ]
                        },
                        "content": _either(_TEXT, _LIST, {"type": "null"}),
                    },
                },
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["message", "type"],
                            "properties": {
                                "message": _TEXT,
                                "type": _TEXT,
                                "param": {"type": ["string", "null"]},
                                "code": {"type": ["string", "null"]},
                            },
                        }
                    },
                },
            },
        },
    }


def handler(service: Service) -> Callable[[Exchange], Awaitable[None]]:
    """What answers `/openapi.json`."""
    data = json.dumps(document(service), ensure_ascii=False).encode()

    async def handle(exchange: Exchange) -> None:
        await exchange.answer(200, data)

    return handle


def _operation(
    path: str,
    method: str,
    summary: str,
    fields: Json | None,
    required: list[str],
    kind: str,
    models: list[str],
) -> Json:
    if kind == "text":
        content: Json = {"text/plain": {"schema": _TEXT}}
    else:
        content = {"application/json": {"schema": _ANY}}
        if kind == "events":
            content["text/event-stream"] = {"schema": _TEXT}
    error = {
        "description": "An error in the form of the API",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if path.startswith("/v1/messages"):
        error["content"] = {"application/json": {"schema": _ANY}}
    operation: Json = {
        "operationId": f"{method}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}, "default": error},
    }
    if path in OPEN:
        operation["security"] = []
    if path == "/ready":
        content = {"application/json": {"schema": _ANY}}
        operation["responses"]["503"] = {"description": "Not now", "content": content}
    if "{name}" in path:
        operation["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": _TEXT}
        ]
    if fields is not None:
        properties = {"model": {"enum": models}, **fields} if "model" in required else fields
        operation["requestBody"] = {
            "required": bool(required),
            "content": {
                "application/json": {
                    "schema": {"type": "object", "required": required, "properties": properties}
                }
            },
        }
    return operation
