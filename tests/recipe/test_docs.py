"""What the documents say about the recipe package runs, and they name everything."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

from ds_jax import recipe

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "recipe.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def given() -> dict[str, Any]:
    """What the examples take for granted."""
    path = ROOT / "ds_jax" / "assets" / "tiny" / "tokenizer.json"
    return {
        **{name: getattr(recipe, name) for name in recipe.__all__},
        "Chat": recipe.ChatCompletionRequest,
        "tokenizer": recipe.Tokenizer.from_file(str(path)),
        "body": '{"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "hi"}]}',
        "id": "answer-1",
        "model": "DeepSeek-V4.1-Flash",
    }


def test_examples_of_the_guide_run(capsys):
    names = given()
    for example in _PYTHON.findall(GUIDE):
        exec(example, names)
    *events, response = capsys.readouterr().out.strip().splitlines()
    assert events[0].startswith("data: ")
    message = json.loads(response)["choices"][0]["message"]
    assert message["reasoning_content"] == "A greeting."
    assert message["content"] == "Hello"


def test_three_lines_are_the_same_in_the_readme():
    lines = _PYTHON.findall(GUIDE)[0]
    assert lines in _PYTHON.findall(README)
    assert len(lines.strip().splitlines()) == 3


def test_guide_names_every_public_name():
    missing = [name for name in recipe.__all__ if f"`{name}`" not in GUIDE]
    assert not missing
