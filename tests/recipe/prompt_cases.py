"""Rendering and encoding cases: a conversation through a library, and what came out as plain JSON.

`library` is `ds_jax.recipe` or any module with the same public names.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.recipe import golden_cases


def encoding(library: ModuleType, version: str, special_tokens: dict[str, str] | None) -> Any:
    """The encoding of a model version (`v4` or `v41`)."""
    names = {"v4": "DeepseekV4Encoding", "v41": "DeepseekV41Encoding"}
    made = getattr(library, names[version])()
    if special_tokens:
        made = made.with_special_tokens(library.SpecialTokens(**special_tokens))
    return made


def shown(prompt: Any) -> dict[str, Any]:
    """A rendered prompt as plain JSON."""
    return {
        "prompt": prompt.prompt,
        "special_ranges": [list(span) for span in prompt.special_ranges],
        "image_sources": [
            {name: getattr(source, name) for name in ("kind", "detail", "data_url", "url", "path")}
            for source in prompt.image_sources
        ],
    }


def render(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """Renders a recorded case."""
    made = encoding(library, case["version"], case.get("special_tokens"))
    return shown(made.render_conversation(golden_cases.conversation(case["conversation"], library)))


def encode(library: ModuleType, case: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Encodes a recorded case."""
    if "text" in case:
        return {"ids": tokenizer.encode(case["text"])}
    made = encoding(library, case["version"], case.get("special_tokens"))
    conversation = golden_cases.conversation(case["conversation"], library)
    try:
        return {"ids": made.with_tokenizer(tokenizer).encode(conversation)}
    except RuntimeError as error:
        return {"runtime_error": str(error)}
