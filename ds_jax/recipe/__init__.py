"""Requests to prompts and raw output to API events, on the host.

Decides how a request of any of the three APIs becomes a conversation, how a conversation is spelled
as a prompt and token ids, and how generated text becomes events again. Never imports jax, never
runs a model. In: request bodies, generated text or ids. Out: prompts, token ids, events.

The names of this package are loaded on first use: importing one part does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ds_jax import __version__

if TYPE_CHECKING:
    from ds_jax.recipe.chat_completions import ChatCompletionRequest
    from ds_jax.recipe.chat_events import (
        ChatCompletionChunk,
        ChatCompletionChunkGenerator,
    )
    from ds_jax.recipe.chat_response import ChatCompletionResponse
    from ds_jax.recipe.conversation import (
        AssistantMessage,
        BytesImageSource,
        Conversation,
        DataUrlImageSource,
        ImageSource,
        LatestReminderMessage,
        Message,
        SystemMessage,
        ToolCall,
        ToolDefinition,
        ToolMessage,
        UrlImageSource,
        UserMessage,
    )
    from ds_jax.recipe.encoding import (
        DeepseekV4Encoding,
        DeepseekV41Encoding,
    )
    from ds_jax.recipe.explanation import explain
    from ds_jax.recipe.image_errors import ImageError
    from ds_jax.recipe.image_fetch import ReqwestImageFetcher
    from ds_jax.recipe.image_preprocess import (
        ImageInfo,
        OpenCvImagePreprocessor,
        PreprocessOptions,
    )
    from ds_jax.recipe.image_resolve import ImageResolver
    from ds_jax.recipe.image_size import CalcResizeError
    from ds_jax.recipe.images import ImageQuota, MultiModalData
    from ds_jax.recipe.inference import (
        InferenceChunk,
        InferenceFinishReason,
        PromptUsage,
    )
    from ds_jax.recipe.messages import MessagesRequest
    from ds_jax.recipe.messages_events import (
        MessagesChunkGenerator,
        MessagesStreamEvent,
    )
    from ds_jax.recipe.messages_response import MessagesResponse
    from ds_jax.recipe.options import (
        ConversionOptions,
        EncryptedContentBehavior,
        ModelVersion,
        ReasoningContentBehavior,
        WebSearchBehavior,
    )
    from ds_jax.recipe.parse import (
        ParsingOptions,
        ThinkingInitialStage,
    )
    from ds_jax.recipe.prompt import RenderedPrompt
    from ds_jax.recipe.request import (
        ConversationRequest,
        ConversionError,
        InferenceOptions,
        OutputConstraint,
    )
    from ds_jax.recipe.response_store import (
        MemoryResponseStore,
        ResponseStore,
        StoredResponse,
    )
    from ds_jax.recipe.responses import ResponsesRequest
    from ds_jax.recipe.responses_events import ResponsesStreamEvent
    from ds_jax.recipe.responses_generator import ResponsesChunkGenerator
    from ds_jax.recipe.responses_reply import ResponsesEcho
    from ds_jax.recipe.responses_response import ResponsesResponse
    from ds_jax.recipe.special_tokens import (
        IMAGE_SPECIAL_TOKEN_ID,
        SpecialToken,
        SpecialTokens,
    )
    from ds_jax.recipe.stream import StreamProcessor
    from ds_jax.recipe.tokenizer import Tokenizer

_MODULES = {
    "AssistantMessage": "conversation",
    "BytesImageSource": "conversation",
    "Conversation": "conversation",
    "DataUrlImageSource": "conversation",
    "ImageSource": "conversation",
    "LatestReminderMessage": "conversation",
    "Message": "conversation",
    "SystemMessage": "conversation",
    "ToolCall": "conversation",
    "ToolDefinition": "conversation",
    "ToolMessage": "conversation",
    "UrlImageSource": "conversation",
    "UserMessage": "conversation",
    "IMAGE_SPECIAL_TOKEN_ID": "special_tokens",
    "SpecialToken": "special_tokens",
    "SpecialTokens": "special_tokens",
    "RenderedPrompt": "prompt",
    "Tokenizer": "tokenizer",
    "DeepseekV41Encoding": "encoding",
    "DeepseekV4Encoding": "encoding",
    "explain": "explanation",
    "ConversionOptions": "options",
    "EncryptedContentBehavior": "options",
    "ModelVersion": "options",
    "ReasoningContentBehavior": "options",
    "WebSearchBehavior": "options",
    "ConversationRequest": "request",
    "ConversionError": "request",
    "InferenceOptions": "request",
    "OutputConstraint": "request",
    "ChatCompletionRequest": "chat_completions",
    "MemoryResponseStore": "response_store",
    "ResponseStore": "response_store",
    "StoredResponse": "response_store",
    "ResponsesEcho": "responses_reply",
    "ResponsesRequest": "responses",
    "MessagesRequest": "messages",
    "ParsingOptions": "parse",
    "ThinkingInitialStage": "parse",
    "InferenceChunk": "inference",
    "InferenceFinishReason": "inference",
    "PromptUsage": "inference",
    "StreamProcessor": "stream",
    "ChatCompletionChunk": "chat_events",
    "ChatCompletionChunkGenerator": "chat_events",
    "ChatCompletionResponse": "chat_response",
    "ResponsesChunkGenerator": "responses_generator",
    "ResponsesResponse": "responses_response",
    "ResponsesStreamEvent": "responses_events",
    "MessagesChunkGenerator": "messages_events",
    "MessagesResponse": "messages_response",
    "MessagesStreamEvent": "messages_events",
    "CalcResizeError": "image_size",
    "ImageError": "image_errors",
    "ImageInfo": "image_preprocess",
    "ImageQuota": "images",
    "ImageResolver": "image_resolve",
    "MultiModalData": "images",
    "OpenCvImagePreprocessor": "image_preprocess",
    "PreprocessOptions": "image_preprocess",
    "ReqwestImageFetcher": "image_fetch",
}

__all__ = [
    "IMAGE_SPECIAL_TOKEN_ID",
    "AssistantMessage",
    "BytesImageSource",
    "CalcResizeError",
    "ChatCompletionChunk",
    "ChatCompletionChunkGenerator",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "Conversation",
    "ConversationRequest",
    "ConversionError",
    "ConversionOptions",
    "DataUrlImageSource",
    "DeepseekV4Encoding",
    "DeepseekV41Encoding",
    "EncryptedContentBehavior",
    "ImageError",
    "ImageInfo",
    "ImageQuota",
    "ImageResolver",
    "ImageSource",
    "InferenceChunk",
    "InferenceFinishReason",
    "InferenceOptions",
    "LatestReminderMessage",
    "MemoryResponseStore",
    "Message",
    "MessagesChunkGenerator",
    "MessagesRequest",
    "MessagesResponse",
    "MessagesStreamEvent",
    "ModelVersion",
    "MultiModalData",
    "OpenCvImagePreprocessor",
    "OutputConstraint",
    "ParsingOptions",
    "PreprocessOptions",
    "PromptUsage",
    "ReasoningContentBehavior",
    "RenderedPrompt",
    "ReqwestImageFetcher",
    "ResponseStore",
    "ResponsesChunkGenerator",
    "ResponsesEcho",
    "ResponsesRequest",
    "ResponsesResponse",
    "ResponsesStreamEvent",
    "SpecialToken",
    "SpecialTokens",
    "StoredResponse",
    "StreamProcessor",
    "SystemMessage",
    "ThinkingInitialStage",
    "Tokenizer",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "UrlImageSource",
    "UserMessage",
    "WebSearchBehavior",
    "__version__",
    "explain",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return __all__
