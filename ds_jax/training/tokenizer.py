"""The tiny model's own tokenizer.

Decides the vocabulary: every control string of a V4.1 prompt as a special token, every digit its
own token, byte-level BPE for the rest. The texts that every prompt repeats (how to call tools, JSON
schema pieces) are cut as whole phrases, so they cost few tokens of a small window. Never tokenizes
for the engine. In: corpus folder. Out: a tokenizer.json.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import sys
from collections.abc import Iterator

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from ds_jax import errors
from ds_jax.recipe import dsml, render
from ds_jax.recipe.special_tokens import SpecialTokens
from ds_jax.training import corpus, tasks

VOCAB_SIZE = 3072
PAD = "<｜▁pad▁｜>"
NOISE = "<｜noise｜>"  # fills the positions that a block of drafts has to guess
_TEXT_BYTES = {"django": 3_500_000, "wordnet": 2_500_000, "stdlib": 2_500_000}
_NUM_DIALOGUES = 12_000
_WORDS = (
    r"'(?:[sdmt]|ll|ve|re)\b| ?[\p{L}_]+|\p{N}| ?[^\s\p{L}\p{N}_]+|\s+(?!\S)|\s+"  # in this order
)
_MARKUP_PHRASES = (
    "\n\n<", " calls>\n<", ' invoke name="', '">\n<', ' parameter name="', '" string="true">',
    '" string="false">', "</", " parameter>\n<", " parameter>\n</", " invoke>\n<", " invoke>\n</",
    " calls>", "<tool_result>", "</tool_result>", '": "', '": [', '": ', '", "', '", ', '["', '"]',
    '{"', '"}', '{"name": "', '", "description": "',
    '", "parameters": {"type": "object", "properties": {"', '{"type": "object", "properties": {"',
    '": {"type": "string"}', '": {"type": "integer"}', '": {"type": "boolean"}',
    '": {"type": "array", "items": {"type": "string"}}',
    '": {"type": "array", "items": {"type": "integer"}}',
    '}, "required": ["', ', "', '"]}}\n', '"]}}', '"]}',
)  # fmt: skip


def control_strings() -> list[str]:
    """Special tokens in id order: bos 0, eos 1, pad 2, then the others."""
    tokens = SpecialTokens()
    head = [tokens.bos, tokens.eos, PAD, tokens.user, tokens.assistant, tokens.system]
    head += [tokens.latest_reminder, tokens.thinking_start, tokens.thinking_end, tokens.dsml, NOISE]
    return head + [token for _, token in tokens.items() if token not in head]


def phrases() -> list[str]:
    """Texts that are cut as a whole, longest first; none contains a digit."""
    fixed = (
        dsml.TEXT_BEFORE_TOOLS,
        dsml.TEXT_AFTER_TOOLS,
        render.EFFORT_TEXT,
        render.FORMAT_TEXT,
    )
    # Control tokens, the effort value and digits cut the fixed texts.
    pieces = [piece for text in fixed for piece in re.split(r"\{[^}]*\}|\d", text)]
    pieces[0] = "\n\n" + pieces[0]  # the tool block always follows a blank line
    pieces.append(dsml.TEXT_AFTER_TOOLS.removeprefix("\n"))  # the last schema took one newline
    return sorted({piece for piece in (*pieces, *_MARKUP_PHRASES) if len(piece) > 1}, key=_length)


def train(texts: Iterator[str], vocab_size: int = VOCAB_SIZE) -> tokenizers.Tokenizer:
    """Trains the BPE on texts without control tokens.

    Raises:
      ConfigError: the texts are too few for that many entries, or a merge spells a control token.
    """
    bpe = tokenizers.Tokenizer(models.BPE())
    cut = "|".join([re.escape(phrase).replace("\\\n", "\n") for phrase in phrases()] + [_WORDS])
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(cut), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    special = [tokenizers.AddedToken(text, special=True) for text in control_strings()]
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if bpe.get_vocab_size() != vocab_size:
        raise errors.ConfigError(
            f"the texts give {bpe.get_vocab_size()} entries, {vocab_size} are needed; give more"
        )
    expected = dict(zip(control_strings(), itertools.count()))
    if any(bpe.token_to_id(token) != index for token, index in expected.items()):
        raise errors.ConfigError(f"control tokens did not get the ids {expected}")
    return bpe


def training_texts(corpus_dir: str | pathlib.Path) -> Iterator[str]:
    """Prose, code and the plain segments of dialogues."""
    for name, limit in _TEXT_BYTES.items():
        documents = corpus.read(corpus_dir, name)
        step = max(1, sum(map(len, documents)) // limit)
        yield from documents[::step]
    for dialogue in itertools.islice(tasks.generate(7, "train"), _NUM_DIALOGUES):
        prompt = render.render(dialogue.prompt).segments
        for segment in (*prompt, *tasks.completion_segments(dialogue)):
            if not segment.special:
                yield segment.text


def _length(text: str) -> tuple[int, str]:
    return -len(text), text


def main(arguments: list[str]) -> None:
    """`CORPUS_DIR OUT_FILE`: trains and writes the tokenizer."""
    if len(arguments) != 2:
        raise SystemExit("give two arguments: the corpus folder and the tokenizer.json to write")
    train(training_texts(arguments[0])).save(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
