"""Messages from the input items of a Responses request.

Decides which items belong to one turn of the assistant, in which order calls and their outputs
stand, and which orders are refused. Never looks at settings other than the model version. In: input
items. Out: messages, with reasoning where the items had any.

Calls and outputs form a group, interleaved, until every call has its output; then the group is
complete: one assistant message with the calls (sorted by id), the outputs in the same order, and
the announcements of the tools that searches found. Nothing else may come before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from ds_jax.recipe import json_text, responses_content, responses_tools
from ds_jax.recipe.message import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    with_places,
)
from ds_jax.recipe.options import ModelVersion
from ds_jax.recipe.request import invalid_request
from ds_jax.recipe.responses_content import Joined
from ds_jax.recipe.responses_input import (
    CustomCallItem,
    CustomOutputItem,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
    SearchCallItem,
    SearchOutputItem,
    UnknownItem,
    WebSearchCallItem,
)
from ds_jax.recipe.responses_tools import ToolNames
from ds_jax.recipe.tool import ToolCall, ToolDefinition

_Call: TypeAlias = FunctionCallItem | CustomCallItem | SearchCallItem
_WithImages = TypeVar("_WithImages", SystemMessage, UserMessage, ToolMessage)
_Output: TypeAlias = FunctionOutputItem | CustomOutputItem | SearchOutputItem


class MessageBuilder:
    """Collects messages item by item. Mutates itself.

    Args:
      version: decides how images, developers and searches for tools are treated.
      image_token: how places of images are spelled.
      names: names of functions in namespaces. Mutated.
      found: the tools each `tool_search_output` item found, by the item's index.
    """

    def __init__(
        self,
        version: ModelVersion,
        image_token: str,
        names: ToolNames,
        found: Mapping[int, Sequence[ToolDefinition]],
    ) -> None:
        self._version = version
        self._image_token = image_token
        self._names = names
        self._found = found
        self._messages: list[Message] = []
        # The assistant's turn in progress.
        self._in_turn = False
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        # The group of calls in progress, by call id; ids of all groups.
        self._calls: dict[str, ToolCall] = {}
        self._outputs: dict[str, ToolMessage] = {}
        self._announced: list[Sequence[ToolDefinition]] = []
        self._called: set[str] = set()
        self._answered: set[str] = set()

    def add(self, index: int, item: Item) -> None:
        """Adds one item.

        Args:
          index: its place in `input`, for errors.
          item: the item.

        Raises:
          ConversionError: a call is still open, an id is wrong, or an image is.
        """
        match item:
            case UnknownItem():
                return
            case SearchCallItem() | SearchOutputItem() if self._is_v4:
                return
            case FunctionCallItem() | CustomCallItem() | SearchCallItem():
                self._add_call(index, item)
                return
            case FunctionOutputItem(call_id=None):
                message = self._tool_message(index, item, None)
                self._refuse_open_call()
                self._end_turn()
                self._messages.append(message)
                return
            case FunctionOutputItem() | CustomOutputItem() | SearchOutputItem():
                self._add_output(index, item, item.call_id or "")
                return
            case _:
                self._refuse_open_call()
        match item:
            case MessageItem(role="assistant"):
                self._add_assistant(index, item)
            case MessageItem():
                self._end_turn()
                self._messages.append(self._message(index, item))
            case ReasoningItem():
                self._add_reasoning(item)
            case WebSearchCallItem():
                pass

    def finish(self) -> list[Message]:
        """All messages.

        Raises:
          ConversionError: a call is still open.
        """
        self._refuse_open_call()
        self._end_turn()
        return self._messages

    @property
    def _is_v4(self) -> bool:
        return self._version is ModelVersion.DeepseekV4Pro

    def _refuse_open_call(self) -> None:
        if self._calls:
            missing = next(call_id for call_id in self._calls if call_id not in self._outputs)
            raise invalid_request(f"No tool output found for tool call {missing}.")

    # The assistant's turn --------------------------------------------------------------------

    def _add_reasoning(self, item: ReasoningItem) -> None:
        text = "\n".join([part.text for part in item.content or ()])
        if not text:
            return
        if self._texts:
            self._end_turn()
        self._in_turn = True
        self._reasoning.append(text)

    def _add_assistant(self, index: int, item: MessageItem) -> None:
        joined = self._join(index, item.content, "content", may_show=False)
        self._in_turn = True
        if joined.parts[0]:
            self._texts.append(joined.parts[0])

    def _end_turn(self) -> None:
        if not self._in_turn:
            return
        calls = [self._calls[call_id] for call_id in sorted(self._calls)]
        self._messages.append(
            AssistantMessage(
                "\n\n".join(self._texts),
                "\n".join(self._reasoning) if self._reasoning else None,
                calls or None,
            )
        )
        self._messages += [self._outputs[call.id] for call in calls]
        self._messages += [SystemMessage("", tools=tools) for tools in self._announced]
        self._in_turn = False
        self._reasoning, self._texts, self._announced = [], [], []
        self._calls, self._outputs = {}, {}

    # Calls and outputs -----------------------------------------------------------------------

    def _add_call(self, index: int, item: _Call) -> None:
        _check_call_id(item.call_id, index)
        if item.call_id in self._called:
            raise invalid_request(f"Duplicate 'call_id': {item.call_id}.")
        self._called.add(item.call_id)
        self._in_turn = True
        self._calls[item.call_id] = self._call(item)

    def _call(self, item: _Call) -> ToolCall:
        match item:
            case FunctionCallItem():
                name = item.name
                if item.namespace is not None:
                    name = self._names.of_call(item.namespace, name)
                return ToolCall(item.call_id, name, item.arguments)
            case CustomCallItem():
                arguments = json_text.dumps_compact({"input": item.input})
                return ToolCall(item.call_id, item.name, arguments)
            case SearchCallItem():
                arguments = json_text.dumps_compact(item.arguments)
                return ToolCall(item.call_id, responses_tools.TOOL_SEARCH, arguments)

    def _add_output(self, index: int, item: _Output, call_id: str) -> None:
        # What a function returned is read before the checks, every other content after them.
        message = None
        if isinstance(item, FunctionOutputItem):
            message = self._tool_message(index, item, call_id)
        _check_call_id(call_id, index)
        if call_id in self._answered:
            raise invalid_request(f"Duplicate tool output for call_id: {call_id}.")
        if call_id not in self._calls:
            raise invalid_request(f"No tool call found for tool output with call_id {call_id}.")
        self._answered.add(call_id)
        self._outputs[call_id] = message or self._tool_message(index, item, call_id)
        if tools := self._found.get(index):
            self._announced.append(tools)
        if len(self._outputs) == len(self._calls):
            self._end_turn()

    def _tool_message(self, index: int, item: _Output, call_id: str | None) -> ToolMessage:
        if isinstance(item, SearchOutputItem):
            found = responses_tools.found_json(item.tools, f"input[{index}]")
            return ToolMessage(json_text.dumps_compact(found), call_id)
        joined = self._join(index, item.output or "", "output")
        return self._placed(ToolMessage(joined.parts[0], call_id, joined.sources), joined)

    # Messages of others ----------------------------------------------------------------------

    def _message(self, index: int, item: MessageItem) -> Message:
        joined = self._join(index, item.content, "content")
        by_system = item.role == "system" or (item.role == "developer" and not self._is_v4)
        if by_system:
            return self._placed(SystemMessage(joined.parts[0], joined.sources), joined)
        return self._placed(UserMessage(joined.parts[0], joined.sources), joined)

    def _placed(self, message: _WithImages, joined: Joined) -> _WithImages:
        """The message with all parts of its text, and its images between them."""
        if not joined.sources:
            return message
        return with_places(message, joined.parts, self._image_token)

    def _join(
        self, index: int, content: responses_content.Content, field: str, *, may_show: bool = True
    ) -> Joined:
        return responses_content.join(
            content, self._version, f"input[{index}]", field, may_show=may_show
        )


def _check_call_id(call_id: str, index: int) -> None:
    if not call_id:
        raise invalid_request(
            f"Invalid 'input[{index}].call_id': empty string."
            " Expected a string with minimum length 1, but got an empty string instead."
        )
