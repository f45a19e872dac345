"""The command line: what stdout gets, and one line for a mistake."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).parents[1]


def run(*flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line on CPU, compiled as other tests are."""
    settings = {
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONWARNINGS": "default",
    }
    environment = os.environ | settings | variables
    return subprocess.run(
        [sys.executable, "-m", "ds_jax.run", *flags],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def base(golden: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A small checkpoint and kept programs."""
    programs = tmp_path_factory.mktemp("programs")
    return [
        f"--checkpoint={golden / 'model' / 'swa_only'}",
        f"--program_cache={programs}",
        "--max_tokens=5",
        "--max_context=64",
        "--temperature=0",
        "--numerics=float32",
    ]


def test_jsonl_prints_one_object_a_prompt_and_nothing_else(
    base: list[str], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"second"\n{"prompt": "third"}\n\n{"token_ids": [0, 8, 9]}\n')
    done = run(*base, "--prompt=first", f"--prompts_file={file}", "--output=jsonl")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert [one["prompt"] for one in found] == ["first", "second", "third", [0, 8, 9]]
    for one in found:
        assert one.keys() == {"index", "prompt", "text", "token_ids", "finish_reason", "usage"}
        assert one["finish_reason"] in ("stop", "length")
        assert one["usage"]["completion_tokens"] == len(one["token_ids"])
    assert "4/4 prompts" in done.stderr
    assert "tokens/s" in done.stderr


def test_every_sampling_parameter_has_a_flag_and_log_probabilities_are_printed(
    base: list[str],
) -> None:
    chosen = ["--min_p=0.1", "--repetition_penalty=1.1", "--presence_penalty=0.1", "--ignore_eos"]
    chosen += ["--frequency_penalty=0.1", "--logit_bias=7:50,8:-50", "--top_logprobs=1"]
    chosen += ["--prompt_logprobs=0", "--output=jsonl"]
    done = run(*base, "--prompt=first", *chosen)
    assert done.returncode == 0, done.stderr
    (found,) = map(json.loads, done.stdout.splitlines())
    assert found["token_ids"] == [7] * 5
    assert len(found["logprobs"]) == 5
    assert all(one["logprob"] <= 0 and len(one["top"]) == 1 for one in found["logprobs"])
    first, *others = found["prompt_logprobs"]
    assert first is None
    assert len(others) == found["usage"]["prompt_tokens"] - 1
    assert all(one["logprob"] <= 0 and one["top"] == [] for one in others)


def test_one_prompt_streams_its_text(base: list[str]) -> None:
    done = run(*base, "--prompt=first")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert "first token after" in done.stderr
    assert "prompts" not in done.stderr


MISTAKES = [
    (["--colour=red"], "Unknown command line flag 'colour'"),
    (["--prompt=x", "--top_k=many"], "--top_k=many"),
    (["--prompt=x", "--numerics=fp64"], "--numerics=fp64"),
    (["--prompt=x", "--temperature=-1"], "temperature=-1"),
    (["--prompt=x", "--max_tokens=0"], "max_tokens=0"),
    (["--prompt=x", "--logit_bias=7"], "--logit_bias=7: must be an id and a value"),
    (["--prompt=x", "--min_p=2"], "min_p=2"),
    (["--prompt=x", "--top_logprobs=1"], "--top_logprobs needs --output=jsonl"),
    ([], "give --prompt or --prompts_file"),
    (["--prompts_file=nowhere.jsonl"], "nowhere.jsonl: cannot read it"),
    (["x"], "unexpected argument 'x'"),
    (["--thinking", "--prompt=x"], "--thinking needs --chat"),
    (["--prompt=x", "--json_schema=nowhere.json"], "--json_schema=nowhere.json: cannot read it"),
    (["--prompt=x", "--json_schema=README.md"], "json_schema at line 1, column 1: no JSON"),
    (["--prompt=x", "--regex=(("], "regex: no regular expression"),
    (["--prompt=x", "--ebnf=README.md"], "ebnf at line "),
    (["--prompt=x", "--regex=a", "--json_schema=README.md"], "give one of --json_schema"),
    (["--prompt=x", "--regex=a", "--ignore_eos"], "ignore_eos=True"),
]
LATE_MISTAKES = [
    (["--prompt=x", "--checkpoint=nowhere"], "nowhere: is not a folder"),
    (["--prompt=x", "--mesh=ep3"], "8 experts cannot be split over 3 devices"),
    (["--prompt=x", "--platform=ascend"], "--platform=ascend"),
    (["--check", "--checkpoint=nowhere.json"], "nowhere.json"),
    (["--check", "--mesh=ep7", "--checkpoint=configs/deepseek_v41_flash.json"], "384 experts"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes_found_without_loading_jax(
    flags: list[str], message: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('jax was loaded')\n")
    one_line(run(*flags, PYTHONPATH=str(tmp_path)), message)


@pytest.mark.parametrize(("flags", "message"), LATE_MISTAKES)
def test_mistakes_found_before_device_work(base: list[str], flags: list[str], message: str) -> None:
    one_line(run(*base, *flags), message)


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_outputs_follow_a_schema(tmp_path: pathlib.Path, base: list[str], output: str) -> None:
    schema = {"type": "array", "items": {"enum": [True, None]}, "minItems": 1, "maxItems": 2}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    flags = [f"--json_schema={file}", "--max_tokens=60", "--seq_seed=1"]
    done = run(*base, *flags, "--temperature=1", f"--output={output}", "--prompt=Flags:")
    assert done.returncode == 0, done.stderr
    text = json.loads(done.stdout)["text"] if output == "jsonl" else done.stdout
    jsonschema.validate(json.loads(text), schema)


def test_prompts_that_do_not_fit_are_named(base: list[str]) -> None:
    one_line(run(*base, "--prompt=" + "a b " * 60), "the context holds 64")


def test_lines_that_are_no_prompt_are_named(base: list[str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"good"\n{"text": "bad"}\n')
    one_line(run(*base, f"--prompts_file={file}"), "prompts.jsonl:2: keys ['text']")


def one_line(done: subprocess.CompletedProcess[str], message: str) -> None:
    """A user's mistake: exit code not 0, one line on stderr, nothing on stdout."""
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
