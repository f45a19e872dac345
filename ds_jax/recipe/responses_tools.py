"""Which tools a Responses request offers to the model, and under which names.

Decides the names of functions in namespaces, what each declared or found tool becomes, and which
declarations are refused. Never checks schemas and never chooses among the tools. In: declared
tools. Out: tool definitions and the table of names.

A function `f` in a namespace `n` is shown as `n::f` (V4.1) or `n__f` (V4). Names of plain functions
are given away first; a name that is taken gets `_1`, `_2`, ... in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ds_jax.recipe import apply_patch_tool, tool_rules
from ds_jax.recipe.options import ModelVersion, WebSearchBehavior
from ds_jax.recipe.request import ConversionError, invalid_request
from ds_jax.recipe.responses_declared import (
    CustomTool,
    FunctionTool,
    JsonObject,
    NamespaceTool,
    Tool,
    ToolSearchTool,
    UnknownTool,
    WebSearchTool,
)
from ds_jax.recipe.tool import ToolDefinition

TOOL_SEARCH = "tool_search"
_SEPARATORS = {ModelVersion.DeepseekV4Pro: "__", ModelVersion.DeepseekV41Flash: "::"}


class ToolNames:
    """Names in the prompt of functions in namespaces.

    Mutates: every new pair of namespace and function takes a name.
    """

    def __init__(self, version: ModelVersion, tools: Iterable[Tool]) -> None:
        """Reserves the names of plain functions and custom tools."""
        self.shown: dict[str, tuple[str, str]] = {}
        """Name in the prompt -> (namespace, function), of declared and found tools."""
        self._separator = _SEPARATORS[version]
        self._taken = {t.name for t in tools if isinstance(t, FunctionTool | CustomTool)}
        self._first: dict[tuple[str, str], str] = {}
        self._next_suffix: dict[str, int] = {}

    def declare(self, namespace: str, function: str) -> str:
        """The name of one more declared function; the first declaration is what calls mean."""
        name = self._new_name(namespace, function)
        self.shown[name] = (namespace, function)
        return name

    def of_call(self, namespace: str, function: str) -> str:
        """The name under which an earlier call is shown."""
        name = self._first.get((namespace, function))
        return self._new_name(namespace, function) if name is None else name

    def _new_name(self, namespace: str, function: str) -> str:
        base = f"{namespace}{self._separator}{function}"
        name, suffix = base, self._next_suffix.get(base, 1)
        while name in self._taken:
            name = f"{base}_{suffix}"
            suffix += 1
        self._next_suffix[base] = suffix
        self._taken.add(name)
        self._first.setdefault((namespace, function), name)
        return name


def check_names(tools: Sequence[Tool], path: str) -> None:
    """Refuses names that are no tool names.

    Args:
      tools: declared or found tools.
      path: where they stand (`tools`), for errors.

    Raises:
      ConversionError: such a name, a name twice in a namespace, or a custom tool in a namespace.
    """
    for index, tool in enumerate(tools):
        _check_names(tool, f"{path}[{index}]")


def check(tools: Sequence[Tool], path: str, web_search: WebSearchBehavior) -> None:
    """Refuses what `check_names` refuses, and tools nobody could run; one tool after the other.

    Args:
      tools: declared or found tools.
      path: where they stand (`tools`), for errors.
      web_search: whether a search by the server is refused.

    Raises:
      ConversionError: see above.
    """
    for index, tool in enumerate(tools):
        if isinstance(tool, CustomTool) and tool.name != apply_patch_tool.NAME:
            raise invalid_request(
                f"Unsupported custom tool: '{tool.name}'."
                f" Only '{apply_patch_tool.NAME}' is supported."
            )
        if isinstance(tool, WebSearchTool) and web_search is WebSearchBehavior.Reject:
            raise server_tools_refused()
        _check_names(tool, f"{path}[{index}]")


def server_tools_refused() -> ConversionError:
    """The refusal of a search that the server would run."""
    return invalid_request("Server tools are not supported")


def _check_names(tool: Tool, path: str) -> None:
    if isinstance(tool, FunctionTool):
        tool_rules.check_name(tool.name, f"{path}.name")
    elif isinstance(tool, NamespaceTool):
        tool_rules.check_name(tool.name, f"{path}.name")
        seen: set[str] = set()
        for index, member in enumerate(tool.tools):
            if isinstance(member, CustomTool):
                raise invalid_request(
                    "Currently custom tools are not allowed inside a namespace."
                    f" Found custom tool '{member.name}' in {path}.tools[{index}]."
                )
            tool_rules.check_name(member.name, f"{path}.tools[{index}].name")
            if member.name in seen:
                raise invalid_request("Tool names within a namespace must be unique.")
            seen.add(member.name)


def definitions(
    tools: Iterable[Tool], names: ToolNames, version: ModelVersion, *, found: bool = False
) -> list[ToolDefinition]:
    """What the model is offered.

    Args:
      tools: declared or found tools, checked.
      names: gives the functions in namespaces their names. Mutated.
      version: decides descriptions and whether tool search exists.
      found: whether a tool search found them; then they are not part of the opening tool block.

    Returns:
      One definition per function, custom tool and client-side tool search, in order.
    """
    result: list[ToolDefinition] = []
    for tool in tools:
        match tool:
            case FunctionTool():
                result.append(_function(tool.name, tool.description, tool, found))
            case CustomTool():
                result.append(apply_patch_tool.definition(version, defer_loading=found))
            case NamespaceTool():
                for member in tool.tools:
                    assert isinstance(member, FunctionTool), "custom tools here were refused"
                    name = names.declare(tool.name, member.name)
                    description = _description(tool, member, version)
                    result.append(_function(name, description, member, found))
            case ToolSearchTool():
                if searches_in_client(tool) and version is not ModelVersion.DeepseekV4Pro:
                    result.append(
                        ToolDefinition.sharing(
                            TOOL_SEARCH, tool.description, tool.parameters, defer_loading=found
                        )
                    )
            case WebSearchTool() | UnknownTool():
                pass
    return result


def searches_in_client(tool: Tool) -> bool:
    """Whether the tool is a tool search that the client carries out."""
    return isinstance(tool, ToolSearchTool) and tool.execution == "client"


def _function(
    name: str, description: str | None, tool: FunctionTool, found: bool
) -> ToolDefinition:
    return ToolDefinition.sharing(name, description, tool.parameters, tool.strict, found)


def _description(namespace: NamespaceTool, tool: FunctionTool, version: ModelVersion) -> str | None:
    if version is ModelVersion.DeepseekV4Pro or not namespace.description:
        return tool.description
    return f"{namespace.description}\n{tool.description or ''}"


def found_json(tools: Sequence[Tool], path: str) -> list[JsonObject]:
    """Found tools as the model reads them: functions in namespaces stand among the others.

    Args:
      tools: what a search found, checked.
      path: where the item stands, for errors.

    Raises:
      ConversionError: a tool of an unknown type.
    """
    result: list[JsonObject] = []
    for tool in tools:
        if isinstance(tool, UnknownTool):
            raise invalid_request(
                f"{path}: the enum variant ResponsesTool::Unsupported cannot be serialized"
            )
        if isinstance(tool, NamespaceTool):
            namespace = {"name": tool.name, "description": tool.description or ""}
            result += [{**member.to_json(), "namespace": namespace} for member in tool.tools]
        else:
            result.append(tool.to_json())
    return result


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """All tools that a request brings along.

    Args:
      names: names of functions in namespaces.
      declared: definitions of the declared tools.
      found: definitions of the tools that each search found, by the index of its output item.
      custom: names of custom tools.
    """

    names: ToolNames
    declared: list[ToolDefinition]
    found: Mapping[int, list[ToolDefinition]]
    custom: frozenset[str]

    @property
    def all(self) -> list[ToolDefinition]:
        """Declared and found tools, in order."""
        return [*self.declared, *(tool for tools in self.found.values() for tool in tools)]


def offer(
    declared: Sequence[Tool],
    outputs: Iterable[tuple[int, Sequence[Tool]]],
    version: ModelVersion,
    web_search: WebSearchBehavior,
) -> Offer:
    """Checks and names the tools that searches found, and joins them with the declared ones.

    Args:
      declared: the declared tools, checked.
      outputs: index and tools of every `tool_search_output` item; V4 knows no tool search.
      version: the model version.
      web_search: whether a search by the server is refused.

    Raises:
      ConversionError: a found tool is refused.
    """
    names = ToolNames(version, declared)
    definitions_ = definitions(declared, names, version)
    custom = {tool.name for tool in declared if isinstance(tool, CustomTool)}
    found: dict[int, list[ToolDefinition]] = {}
    if version is not ModelVersion.DeepseekV4Pro:
        for index, tools in outputs:
            check(tools, f"input[{index}].tools", web_search)
            found[index] = definitions(tools, names, version, found=True)
            custom |= {tool.name for tool in tools if isinstance(tool, CustomTool)}
    return Offer(names, definitions_, found, frozenset(custom))
