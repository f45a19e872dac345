"""Output that follows a grammar, on the host: JSON Schema, regular expressions, EBNF, tool calls.

Decides which tokens may come next. Never touches a device and never samples. In: the text of a
grammar and a tokenizer. Out: grammars, matchers, packed mask rows.

    grammar = structured.compile("json_schema", '{"type": "integer"}', tokenizer)
    matcher = grammar.matcher()
"""

from __future__ import annotations

from ds_jax.structured.kinds import compile as compile
