"""Makes the embedded model: data, training, checkpoint, figures.

python -m ds_jax.training corpus    --out=DIR                     downloads and extracts the sources
python -m ds_jax.training tokenizer --corpus=DIR --out=FILE       trains the vocabulary
python -m ds_jax.training rows      --corpus=DIR --out=DIR        packs rows, writes held-out files
python -m ds_jax.training text      --rows=FILE --out=DIR         trains; log and checkpoints in DIR
python -m ds_jax.training export    --state=DIR --out=DIR         released layout, FP8/FP4
python -m ds_jax.training evaluate  --checkpoint=DIR              held-out dialogues and prose
python -m ds_jax.training dspark    --rows=FILE --out=DIR         trains the drafter of a checkpoint
python -m ds_jax.training dspark_export --state=DIR --out=DIR     checkpoint with that drafter
python -m ds_jax.training dspark_report --checkpoint=DIR          acceptance and calibration

Decides flags and which part runs. Never computes. A user's mistake ends with one line and exit
code 2.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from absl import flags

from ds_jax import command
from ds_jax.errors import ConfigError

_TINY = pathlib.Path(__file__).parents[1] / "assets" / "tiny"

_OUT = flags.DEFINE_string("out", None, "What a command writes: a folder, or the tokenizer file.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "export: replace an existing folder.")
_CORPUS = flags.DEFINE_string("corpus", None, "Folder written by the corpus command.")
_ANY_PYTHON = flags.DEFINE_bool(
    "any_python", False, "corpus: accept another standard library than the recorded one."
)
_TOKENIZER = flags.DEFINE_string("tokenizer", str(_TINY / "tokenizer.json"), "tokenizer.json")
_CONFIG = flags.DEFINE_string("config", str(_TINY / "config.json"), "The model's config.json.")
_NUM_ROWS = flags.DEFINE_integer("num_rows", 19_000, "rows: how many to pack.", lower_bound=1)
_SEQ_LEN = flags.DEFINE_integer("seq_len", 320, "rows: predicted tokens a row.", lower_bound=32)
_MIX = flags.DEFINE_list(
    "mix", [], "rows: shares such as dialogues=0.6,repeats=0.3,django=0.1; default: the usual ones."
)
_ROWS = flags.DEFINE_string("rows", None, "text: rows.npz written by the rows command.")
_STEPS = flags.DEFINE_integer("steps", 1500, "text: updates in all.", lower_bound=1)
_BATCH_ROWS = flags.DEFINE_integer("batch_rows", 16, "text: rows of an update.", lower_bound=1)
_RATE = flags.DEFINE_float("rate", 4e-3, "text: peak learning rate.", lower_bound=0.0)
_COOLDOWN = flags.DEFINE_float(
    "cooldown", 0.4, "text: share of the steps over which the rate falls to zero.", 0.0, 1.0
)
_DENSE = flags.DEFINE_integer(
    "dense_selection", 0, "text: first steps in which attention sees every row.", lower_bound=0
)
_SEED = flags.DEFINE_integer("seed", 0, "rows, text: of packing, of initial values and order.")
_RESUME = flags.DEFINE_string("resume", None, "text: state folder to go on from.")
_SAVE_EVERY = flags.DEFINE_integer("save_every", 100, "text: steps between states.", lower_bound=1)
_NUMERICS = flags.DEFINE_enum("numerics", "released", ["released", "float32"], "Rounding policy.")
_PROGRAM_CACHE = flags.DEFINE_string(
    "program_cache", "~/.cache/ds_jax/programs", "Folder of compiled programs; empty: none."
)
_STATE = flags.DEFINE_string(
    "state",
    None,
    "export: state folder of the text command; dspark_export: one or several, by ','.",
)
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint", "tiny", "evaluate, dspark commands: an exported folder."
)
_DIALOGUES = flags.DEFINE_integer("dialogues", 600, "evaluate: dialogues.", lower_bound=0)
_PROSE_ROWS = flags.DEFINE_integer("prose_rows", 400, "evaluate: rows of prose.", lower_bound=1)
_ANCHORS = flags.DEFINE_integer("anchors", 24, "dspark: blocks of a row and step.", lower_bound=1)
_NEXTN = flags.DEFINE_integer("nextn", 5, "dspark_report: drafts a step.", lower_bound=1)
_TEMPERATURES = flags.DEFINE_list(
    "temperatures", [], "dspark_export: calibration of the confidence, one a draft."
)
_REPORT = flags.DEFINE_string("report", None, "evaluate: also write the figures there as JSON.")
_MISTAKES = flags.DEFINE_integer("mistakes", 3, "evaluate: wrong answers to show of each group.")


def main(arguments: list[str]) -> None:
    """Runs one command."""
    commands: dict[str, Callable[[], None]] = {
        "corpus": _corpus,
        "tokenizer": _tokenizer,
        "rows": _rows,
        "text": _text,
        "export": _export,
        "evaluate": _evaluate,
        "dspark": _dspark,
        "dspark_export": _dspark_export,
        "dspark_report": _dspark_report,
    }
    if len(arguments) != 1 or arguments[0] not in commands:
        given = " ".join(arguments) or "nothing"
        raise ConfigError(f"{given!r} given; use one command of {', '.join(commands)}")
    commands[arguments[0]]()


def _corpus() -> None:
    from ds_jax.training import corpus

    for name, size in corpus.build(
        command.needed(_OUT), check_stdlib=not _ANY_PYTHON.value
    ).items():
        print(f"{name}: {size} bytes")


def _tokenizer() -> None:
    from ds_jax.training import tokenizer

    out = command.needed(_OUT)
    tokenizer.train(tokenizer.training_texts(command.needed(_CORPUS))).save(out)


def _rows() -> None:
    from ds_jax.recipe.tokenizer import Tokenizer
    from ds_jax.training import prepare

    counts = prepare.write(
        Tokenizer.from_file(_TOKENIZER.value),
        command.needed(_CORPUS),
        command.needed(_OUT),
        num_rows=_NUM_ROWS.value,
        seq_len=_SEQ_LEN.value,
        seed=_SEED.value,
        mix=_shares(_MIX.value),
    )
    for name, count in counts.items():
        print(f"{name}: {count} tokens")


def _shares(given: list[str]) -> dict[str, float] | None:
    if not given:
        return None
    try:
        return {name: float(share) for name, _, share in (text.partition("=") for text in given)}
    except ValueError:
        raise ConfigError(
            f"--mix={','.join(given)}: must be name=share with commas between, such as "
            "dialogues=0.9,repeats=0.1"
        ) from None


def _text() -> None:
    from ds_jax import config
    from ds_jax.engine import platforms
    from ds_jax.training import prepare, text, train

    recipe = train.Recipe(
        steps=_STEPS.value,
        batch_rows=_BATCH_ROWS.value,
        peak_rate=_RATE.value,
        cooldown=_COOLDOWN.value,
        dense_selection=_DENSE.value,
        seed=_SEED.value,
    )
    model = config.load_model(_CONFIG.value)
    data = prepare.load_rows(command.needed(_ROWS))
    platforms.keep_programs(_PROGRAM_CACHE.value or None)
    text.train_text(
        model,
        config.numerics_preset(_NUMERICS.value),
        recipe,
        data,
        _TOKENIZER.value,
        command.needed(_OUT),
        resume=_RESUME.value,
        save_every=_SAVE_EVERY.value,
    )


def _export() -> None:
    from ds_jax import config
    from ds_jax.training import export

    model = config.load_model(_CONFIG.value)
    state = export.restore(command.needed(_STATE), model)
    out, overwrite = command.needed(_OUT), _OVERWRITE.value
    size = export.export(state, model, _TOKENIZER.value, out, overwrite=overwrite)
    print(f"{out}: {size} bytes, after {int(state.step)} steps")


def _evaluate() -> None:
    from ds_jax.pipeline import Pipeline
    from ds_jax.training import evaluate

    pipeline = Pipeline.from_checkpoint(
        _CHECKPOINT.value,
        numerics=_NUMERICS.value,
        program_cache=_PROGRAM_CACHE.value or None,
        **evaluate.PIPELINE_OPTIONS,
    )
    prose = None
    if _CORPUS.value:
        if pipeline.tokenizer is None:
            raise ConfigError(f"{_CHECKPOINT.value}: has no tokenizer.json to read prose with")
        prose = evaluate.held_out_prose(pipeline.tokenizer, _CORPUS.value, _PROSE_ROWS.value)
    report = evaluate.evaluate(
        pipeline,
        evaluate.held_out_dialogues(_DIALOGUES.value),
        prose,
        keep_mistakes=_MISTAKES.value,
    )
    for mistake in report.mistakes:
        print(f"--- {mistake.group}: {mistake.reason}\n{mistake.prompt}{mistake.completion}\n")
    print(report.table())
    if _REPORT.value:
        command.write_json(_REPORT.value, report.record())


def _dspark() -> None:
    from ds_jax import config
    from ds_jax.engine import platforms
    from ds_jax.training import dspark, dspark_run, prepare

    recipe = dspark.Recipe(
        steps=_STEPS.value,
        batch_rows=_BATCH_ROWS.value,
        anchors=_ANCHORS.value,
        peak_rate=_RATE.value,
        cooldown=_COOLDOWN.value,
        seed=_SEED.value,
    )
    platforms.keep_programs(_PROGRAM_CACHE.value or None)
    dspark_run.train(
        _folder(),
        config.load_model(_CONFIG.value),
        config.numerics_preset(_NUMERICS.value),
        recipe,
        prepare.load_rows(command.needed(_ROWS)),
        command.needed(_OUT),
        resume=_RESUME.value,
        save_every=_SAVE_EVERY.value,
    )


def _dspark_export() -> None:
    import jax.numpy as jnp

    from ds_jax import config
    from ds_jax.checkpoint import loader
    from ds_jax.training import dspark_run

    model = config.load_model(_CONFIG.value)
    target = loader.load(_folder(), model, weights="dequantized", dtype=jnp.float32)
    state = dspark_run.mean(
        [dspark_run.restore(path, model, target) for path in command.needed(_STATE).split(",")]
    )
    out = command.needed(_OUT)
    given = [float(t) for t in _TEMPERATURES.value]
    size = dspark_run.export(
        *(state, _folder(), model, out), temperatures=given, overwrite=_OVERWRITE.value
    )
    print(f"{out}: {size} bytes, after {int(state.step)} steps")


def _dspark_report() -> None:
    from ds_jax.pipeline import Pipeline
    from ds_jax.records import SamplingParams
    from ds_jax.training import dspark_report, evaluate

    pipeline = Pipeline.from_checkpoint(
        _folder(),
        numerics=_NUMERICS.value,
        program_cache=_PROGRAM_CACHE.value or None,
        nextn=_NEXTN.value,
        confidence_temperatures=(1.0,) * _NEXTN.value,
        **evaluate.PIPELINE_OPTIONS,
    )
    prompts = evaluate.prompt_ids(pipeline, evaluate.held_out_dialogues(_DIALOGUES.value))
    for temperature in (0.0, 1.0):
        params = SamplingParams(max_tokens=evaluate.MAX_TOKENS, temperature=temperature)
        report = dspark_report.measure(pipeline, prompts, params)
        print(f"temperature {temperature:g}: {report.table()}\n")


def _folder() -> pathlib.Path:
    return _TINY if _CHECKPOINT.value == "tiny" else pathlib.Path(_CHECKPOINT.value)


if __name__ == "__main__":
    command.start("ds_jax.training", main)
