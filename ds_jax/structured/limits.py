"""How large a grammar may be and how long it may take.

Decides the defaults. Never measures anything. In: numbers. Out: one frozen record.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one grammar; a text beyond one of them is refused with its name.

    Attributes:
      text_bytes: length of the text.
      depth: nesting of a schema or of groups.
      schema_nodes: subschemas of a schema.
      properties: declared properties of one object.
      tools: tools of one request.
      expression_nodes: parts of an EBNF grammar.
      lark_bytes, lark_lines: length of a grammar in the library's own language.
      seconds: from the request until its grammar is ready.
      row_items, step_items: parser items of one row and of one mask.
      lexer_states: states of a grammar's lexer, about 2 kB each, shared by all its matchers.
      grammar_symbols: symbols of the translated grammar.
    """

    text_bytes: int = 2**20
    depth: int = 96
    schema_nodes: int = 20_000
    properties: int = 1_000
    tools: int = 512
    expression_nodes: int = 20_000
    lark_bytes: int = 2**17
    lark_lines: int = 2_000
    seconds: float = 20.0
    row_items: int = 20_000
    step_items: int = 200_000
    lexer_states: int = 100_000
    grammar_symbols: int = 500_000
