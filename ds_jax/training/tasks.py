"""Protocol dialogues with exactly known answers, for training and for scoring.

Decides what the tiny model practises: sums, tool calls, JSON answers, answers after a tool result,
and small talk. Never tokenizes by itself and never trains. In: a seed and a split. Out: an endless
iterator of `Dialogue`; `encode` turns one into token ids and a loss mask.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterable, Iterator

from ds_jax.recipe import conversation as conv
from ds_jax.recipe import render
from ds_jax.recipe.prompt import PromptSegment
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.training import task_chat, task_tools
from ds_jax.training.task_words import Words

KIND_SHARES = {"arithmetic": 34, "tool": 24, "json": 18, "followup": 10, "chat": 14}  # percent


@dataclasses.dataclass(frozen=True)
class Dialogue:
    """A prompt and the only right answer to it."""

    kind: str
    prompt: conv.Conversation
    completion: conv.AssistantMessage


def generate(seed: int, split: str, more_words: Iterable[str] = ()) -> Iterator[Dialogue]:
    """Yields dialogues forever; the same seed and split give the same dialogues.

    Args:
      seed: any integer.
      split: "train" or "heldout"; number pairs, names, keys and value words of the held-out split
        never occur in training.
      more_words: English words to mix in as values and keys (`task_words.vocabulary`).
    """
    rng = random.Random(f"{split} {seed}")
    words = Words(rng, split, more_words)
    kinds, shares = list(KIND_SHARES), list(KIND_SHARES.values())
    while True:
        kind = rng.choices(kinds, shares)[0]
        prompt, completion = _MAKERS[kind](rng, words)
        yield Dialogue(kind, prompt, completion)


def completion_segments(dialogue: Dialogue) -> tuple[PromptSegment, ...]:
    """Segments the model shall write after the rendered prompt."""
    return render.render_completion(
        dialogue.completion, thinking_mode=dialogue.prompt.thinking_mode
    ).segments


def completion_text(dialogue: Dialogue) -> str:
    """The expected completion as text, control strings included."""
    return "".join(segment.text for segment in completion_segments(dialogue))


def encode(dialogue: Dialogue, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Token ids of prompt and completion; the mask is 1 on completion tokens, 0 on the prompt."""
    prompt = tokenizer.encode_segments(render.render(dialogue.prompt).segments)
    completion = tokenizer.encode_segments(completion_segments(dialogue))
    return prompt + completion, [0] * len(prompt) + [1] * len(completion)


_Made = tuple[conv.Conversation, conv.AssistantMessage]


def _messages(rng: random.Random, *messages: conv.Message) -> tuple[conv.Message, ...]:
    """Sometimes a system message in front."""
    if rng.random() < 0.25:
        return (conv.SystemMessage("You are a helpful assistant."), *messages)
    return messages


def _effort(rng: random.Random) -> conv.ReasoningEffort | None:
    efforts: tuple[conv.ReasoningEffort | None, ...] = (None, None, "high", "low", "max")
    return rng.choice(efforts)


def _arithmetic(rng: random.Random, words: Words) -> _Made:
    first, second = words.pair()
    if rng.random() < 0.55:
        sentence = rng.choice(_SUMS).format(a=first, b=second)
        reasoning, answer = add_reasoning(first, second), first + second
    else:
        first, second = max(first, second), min(first, second)
        sentence = rng.choice(_DIFFERENCES).format(a=first, b=second)
        reasoning, answer = subtract_reasoning(first, second), first - second
    prompt = conv.Conversation(
        _messages(rng, conv.UserMessage(sentence)), reasoning_effort=_effort(rng)
    )
    return prompt, conv.AssistantMessage(str(answer), reasoning)


_SUMS = (
    "What is {a}+{b}?",
    "What is {a} + {b}?",
    "{a}+{b}",
    "Compute {a}+{b}.",
    "Add {a} and {b}.",
    "What is {a} plus {b}?",
    "I have {a} coins and get {b} more. How many coins do I have?",
)
_DIFFERENCES = (
    "What is {a}-{b}?",
    "What is {a} - {b}?",
    "{a}-{b}",
    "Compute {a}-{b}.",
    "What is {a} minus {b}?",
    "I have {a} coins and give away {b}. How many coins are left?",
)


def add_reasoning(first: int, second: int) -> str:
    """Digit by digit: ones, then tens with the carry, then the sum."""
    ones = first % 10 + second % 10
    tens = first // 10 + second // 10 + ones // 10
    carry = "+1" if ones > 9 else ""
    return (
        f"{first}+{second}: {first % 10}+{second % 10}={ones} "
        f"{first // 10}+{second // 10}{carry}={tens} -> {first + second}"
    )


def subtract_reasoning(first: int, second: int) -> str:
    """Digit by digit: ones (ten more if needed), then tens less the borrowed one."""
    borrow = first % 10 < second % 10
    ones = first % 10 + 10 * borrow
    tens = first // 10 - second // 10 - borrow
    return (
        f"{first}-{second}: {ones}-{second % 10}={ones - second % 10} "
        f"{first // 10}-{second // 10}{'-1' if borrow else ''}={tens} -> {first - second}"
    )


def _call(number: int, request: task_tools.ToolRequest) -> conv.ToolCall:
    arguments = json.dumps(request.arguments, ensure_ascii=False)
    return conv.ToolCall(f"call_{number}", request.tool.name, arguments)


def _offer(rng: random.Random, *needed: conv.ToolDefinition) -> tuple[conv.ToolDefinition, ...]:
    """The needed tools among up to four."""
    tools = {tool.name: tool for tool in needed}
    total = rng.choice((1, 2, 2, 3, 3, 4))
    while len(tools) < total:
        tool = rng.choice(list(task_tools.TOOLS.values()))
        tools[tool.name] = tool
    offered = list(tools.values())
    rng.shuffle(offered)
    return tuple(offered)


def _ask(rng: random.Random, request: task_tools.ToolRequest) -> str:
    start, end = rng.choice((("", "."), ("", "."), ("", "?"), ("Please: ", "."), ("Hi! ", ".")))
    return f"{start}{request.sentence}{end}"


def _tool(rng: random.Random, words: Words) -> _Made:
    name = rng.choice(list(task_tools.TOOLS))
    requests = [task_tools.request(name, rng, words)]
    sentence = _ask(rng, requests[0])
    if rng.random() < 0.1:
        requests.append(task_tools.request(rng.choice(list(task_tools.TOOLS)), rng, words))
        sentence = f"{sentence} {requests[1].sentence}."
    prompt = conv.Conversation(
        _messages(rng, conv.UserMessage(sentence)),
        thinking_mode=rng.random() < 0.3,
        tools=_offer(rng, *(request.tool for request in requests)),
    )
    calls = tuple(_call(number, request) for number, request in enumerate(requests))
    reasoning = f"Use {' and '.join(call.name for call in calls)}."
    return prompt, conv.AssistantMessage("", reasoning if prompt.thinking_mode else None, calls)


def _followup(rng: random.Random, words: Words) -> _Made:
    request = task_tools.request(rng.choice(list(task_tools.TOOLS)), rng, words)
    call = _call(0, request)
    thinking = rng.random() < 0.25
    turn = conv.AssistantMessage("", f"Use {call.name}." if thinking else None, (call,))
    prompt = conv.Conversation(
        _messages(
            rng,
            conv.UserMessage(_ask(rng, request)),
            turn,
            conv.ToolMessage(request.result, call.id),
        ),
        thinking_mode=thinking,
        tools=_offer(rng, request.tool)[:2] if rng.random() < 0.3 else (request.tool,),
    )
    return prompt, conv.AssistantMessage(request.answer, "I have the result." if thinking else None)


_JSON_SENTENCES = (
    ("{facts}", "{key} is {value}", ", "),
    ("Data: {facts}", "{key} {value}", ", "),
    ("Make a record with {facts}", "{key} {value}", " and "),
    ("{facts}", "{key}: {value}", "\n"),
)


def _json(rng: random.Random, words: Words) -> _Made:
    keys = words.keys(rng.choice((1, 2, 2, 3, 3, 4)))
    record, properties = {}, {}
    for key in keys:
        kind = rng.choice(("string", "string", "integer", "integer", "boolean", "array"))
        properties[key] = {"type": kind}
        if kind == "string":
            record[key] = rng.choice((words.name, words.word, words.phrase))()
        elif kind == "integer":
            record[key] = words.number()
        elif kind == "boolean":
            record[key] = rng.random() < 0.5
        else:
            properties[key]["items"] = {"type": "string"}
            record[key] = words.distinct(rng.randint(1, 3))
    frame, fact, separator = rng.choice(_JSON_SENTENCES)
    told = list(record.items())
    if rng.random() < 0.3:
        rng.shuffle(told)  # the answer follows the schema's order, not the sentence's
    facts = separator.join(fact.format(key=key, value=json.dumps(value)) for key, value in told)
    sentence = frame.format(facts=facts) + "."
    if rng.random() < 0.12:
        sentence += rng.choice((" Do not use JSON.", " Answer in plain text.", " Say hello first."))
    prompt = conv.Conversation(
        _messages(rng, conv.UserMessage(sentence)),
        thinking_mode=rng.random() < 0.15,
        response_schema={"type": "object", "properties": properties, "required": keys},
    )
    return prompt, conv.AssistantMessage(
        json.dumps(record), f"Fields: {', '.join(keys)}." if prompt.thinking_mode else None
    )


def _chat(rng: random.Random, words: Words) -> _Made:
    messages, answer, reasoning = task_chat.exchange(rng, words)
    thinking = rng.random() < 0.25
    tools: tuple[conv.ToolDefinition, ...] = ()
    if messages[0].role == "user" and rng.random() < 0.15:
        tools = _offer(rng)[:2]
    prompt = conv.Conversation(messages, thinking_mode=thinking, tools=tools)
    return prompt, conv.AssistantMessage(answer, reasoning if thinking else None)


_MAKERS: dict[str, Callable[[random.Random, Words], _Made]] = {
    "arithmetic": _arithmetic,
    "tool": _tool,
    "json": _json,
    "followup": _followup,
    "chat": _chat,
}
