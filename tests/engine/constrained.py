"""A replica that speaks bytes, and requests whose output follows a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema

from ds_jax import Pipeline, SamplingParams
from ds_jax.grammar_request import GrammarRequest
from ds_jax.records import FinishReason, TokenEvent
from ds_jax.structured.vocabulary import ByteTokenizer
from ds_jax.testing import drafting_model, tiny_model, tiny_pipeline
from tests.engine import replicas

END, THINKING_END, MARKER = 256, 258, 259
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "bc"]}, "n": {"type": "integer", "maximum": 99}},
    "required": ["kind"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "name": "f",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["x"],
            "additionalProperties": False,
        },
    }
]
PAIR = re.compile(r"[a-c]{2,6}=[0-9]{1,3}")


class Speech(ByteTokenizer):
    """Bytes as a pipeline's tokenizer."""

    def decode(self, token_ids: Sequence[int], *, skip_control: bool = False) -> str:
        kept = [i for i in token_ids if i < 256 or not skip_control]
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def detokenizer(self, *, skip_control: bool = False) -> Any:
        raise AssertionError("no request here has stop strings")


def speaker(*, drafter: bool = False, **options: Any) -> Pipeline:
    """One window layer over 256 bytes and four control tokens; slots of 64 positions.

    Args:
      drafter: the model has one, of two blocks.
    """
    layer = {
        "vocab_size": 260,
        "eos_token_id": END,
        "num_hidden_layers": 1,
        "kv_source_layer_ids": (),
        "index_source_layer_ids": (),
        "candidate_source_layer_id": None,
        "engram_layer_ids": (),
        "engram_num_embeddings": (),
    }
    if drafter:
        drafts = {"dspark_target_layer_ids": (0,), "dspark_noise_token_id": 257}
        model = drafting_model(**layer | drafts, compress_ratios=(0, 0, 0))
    else:
        model = tiny_model(**layer, compress_ratios=(0,))
    sizes = {"chunk_tokens": (16,), "max_context": 64, "page_tokens": 16, "max_sequences": 4}
    return tiny_pipeline(model, tokenizer=Speech(), token_map=None, **sizes | options)


def follows_schema(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def is_call(text: str) -> bool:
    mark = "｜DSML｜"
    call = (
        f'<{mark} invoke name="f">\\n<{mark} parameter name="x" string="false">[0-9]'
        f"</{mark} parameter>\\n</{mark} invoke>\\n"
    )
    return re.fullmatch(f"(?:{call})+</{mark} calls>", text) is not None


KINDS: dict[str, tuple[GrammarRequest, Callable[[str], bool]]] = {
    "json_schema": (GrammarRequest("json_schema", json.dumps(SCHEMA)), follows_schema),
    "regex": (GrammarRequest("regex", PAIR.pattern), lambda t: bool(PAIR.fullmatch(t))),
    "ebnf": (
        GrammarRequest("ebnf", 'root ::= "(" (root | [xy]) ")"'),
        lambda t: re.fullmatch(r"(\(+)[xy](\)+)", t) is not None and t.count("(") == t.count(")"),
    ),
    "lark": (
        GrammarRequest("lark", 'start: "k" (/[0-9]/){2,5}'),
        lambda t: re.fullmatch("k[0-9]{2,5}", t) is not None,
    ),
    "tool_calls": (
        GrammarRequest("tool_calls", json.dumps(TOOLS), (("start", "calls"), ("max_calls", 2))),
        is_call,
    ),
}


def params(kind: str, seed: int, **fields: Any) -> SamplingParams:
    """Drawn at temperature 1, as long as the context allows."""
    given: dict[str, Any] = {"max_tokens": 400, "grammar": KINDS[kind][0]}
    return SamplingParams(seq_seed=seed, **given | fields)


def check(kind: str, events: Sequence[TokenEvent]) -> bool:
    """Whether the output has ended by itself; it is valid then."""
    assert events[-1].error is None, events[-1].error
    if events[-1].finish_reason is not FinishReason.STOP:
        assert events[-1].finish_reason is FinishReason.LENGTH
        return False
    text = Speech().decode(replicas.tokens(events))
    assert KINDS[kind][1](text), f"{kind}: {text!r}"
    return True
