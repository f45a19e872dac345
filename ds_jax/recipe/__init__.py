"""Requests to prompts and raw output to API events, on the host.

Decides how a request of any of the three APIs becomes a conversation, how a conversation is spelled
as a prompt and token ids, and how generated text becomes events again. Never imports jax, never
runs a model. In: request bodies, generated text or ids. Out: prompts, token ids, events.

The names of this package are loaded on first use: importing one part does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_jax.recipe.conversation import (
        AssistantMessage as AssistantMessage,
        BytesImageSource as BytesImageSource,
        Conversation as Conversation,
        DataUrlImageSource as DataUrlImageSource,
        ImageSource as ImageSource,
        LatestReminderMessage as LatestReminderMessage,
        Message as Message,
        SystemMessage as SystemMessage,
        ToolCall as ToolCall,
        ToolDefinition as ToolDefinition,
        ToolMessage as ToolMessage,
        UrlImageSource as UrlImageSource,
        UserMessage as UserMessage,
    )
    from ds_jax.recipe.special_tokens import (
        IMAGE_SPECIAL_TOKEN_ID as IMAGE_SPECIAL_TOKEN_ID,
        SpecialToken as SpecialToken,
        SpecialTokens as SpecialTokens,
    )
    from ds_jax.recipe.prompt import RenderedPrompt as RenderedPrompt
    from ds_jax.recipe.tokenizer import Tokenizer as Tokenizer
    from ds_jax.recipe.encoding import (
        DeepseekV41Encoding as DeepseekV41Encoding,
        DeepseekV4Encoding as DeepseekV4Encoding,
    )
    from ds_jax.recipe.explain import explain as explain
    from ds_jax.recipe.options import (
        ConversionOptions as ConversionOptions,
        ModelVersion as ModelVersion,
        ReasoningContentBehavior as ReasoningContentBehavior,
        WebSearchBehavior as WebSearchBehavior,
    )
    from ds_jax.recipe.request import (
        ConversationRequest as ConversationRequest,
        ConversionError as ConversionError,
        InferenceOptions as InferenceOptions,
        OutputConstraint as OutputConstraint,
    )
    from ds_jax.recipe.chat_completions import ChatCompletionRequest as ChatCompletionRequest
    from ds_jax.recipe.responses import (
        ResponsesEcho as ResponsesEcho,
        ResponsesRequest as ResponsesRequest,
    )
    from ds_jax.recipe.messages import MessagesRequest as MessagesRequest
    from ds_jax.recipe.parse import (
        ParsingOptions as ParsingOptions,
        ThinkingInitialStage as ThinkingInitialStage,
    )
    from ds_jax.recipe.stream import (
        InferenceChunk as InferenceChunk,
        InferenceFinishReason as InferenceFinishReason,
        PromptUsage as PromptUsage,
        StreamProcessor as StreamProcessor,
    )
    from ds_jax.recipe.chat_events import (
        ChatCompletionChunk as ChatCompletionChunk,
        ChatCompletionChunkGenerator as ChatCompletionChunkGenerator,
        ChatCompletionResponse as ChatCompletionResponse,
    )
    from ds_jax.recipe.responses_events import (
        ResponsesChunkGenerator as ResponsesChunkGenerator,
        ResponsesResponse as ResponsesResponse,
        ResponsesStreamEvent as ResponsesStreamEvent,
    )
    from ds_jax.recipe.messages_events import (
        MessagesChunkGenerator as MessagesChunkGenerator,
        MessagesResponse as MessagesResponse,
        MessagesStreamEvent as MessagesStreamEvent,
    )
    from ds_jax.recipe.images import (
        CalcResizeError as CalcResizeError,
        ImageError as ImageError,
        ImageInfo as ImageInfo,
        ImageQuota as ImageQuota,
        ImageResolver as ImageResolver,
        MultiModalData as MultiModalData,
        OpenCvImagePreprocessor as OpenCvImagePreprocessor,
        PreprocessOptions as PreprocessOptions,
    )
    from ds_jax.recipe.image_fetch import ReqwestImageFetcher as ReqwestImageFetcher

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
    "explain": "explain",
    "ConversionOptions": "options",
    "ModelVersion": "options",
    "ReasoningContentBehavior": "options",
    "WebSearchBehavior": "options",
    "ConversationRequest": "request",
    "ConversionError": "request",
    "InferenceOptions": "request",
    "OutputConstraint": "request",
    "ChatCompletionRequest": "chat_completions",
    "ResponsesEcho": "responses",
    "ResponsesRequest": "responses",
    "MessagesRequest": "messages",
    "ParsingOptions": "parse",
    "ThinkingInitialStage": "parse",
    "InferenceChunk": "stream",
    "InferenceFinishReason": "stream",
    "PromptUsage": "stream",
    "StreamProcessor": "stream",
    "ChatCompletionChunk": "chat_events",
    "ChatCompletionChunkGenerator": "chat_events",
    "ChatCompletionResponse": "chat_events",
    "ResponsesChunkGenerator": "responses_events",
    "ResponsesResponse": "responses_events",
    "ResponsesStreamEvent": "responses_events",
    "MessagesChunkGenerator": "messages_events",
    "MessagesResponse": "messages_events",
    "MessagesStreamEvent": "messages_events",
    "CalcResizeError": "images",
    "ImageError": "images",
    "ImageInfo": "images",
    "ImageQuota": "images",
    "ImageResolver": "images",
    "MultiModalData": "images",
    "OpenCvImagePreprocessor": "images",
    "PreprocessOptions": "images",
    "ReqwestImageFetcher": "image_fetch",
}

__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
