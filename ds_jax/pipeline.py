"""The model behind one object: generate, stream, score, trace.

Decides how text becomes requests and events become text. Never plans steps, never touches arrays of
the cache. In: a checkpoint and prompts. Out: results, text pieces, logits, named intermediates.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import pathlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from ds_jax import config, config_rules, tracing
from ds_jax.checkpoint import loader
from ds_jax.engine import fingerprint as fingerprints
from ds_jax.engine import platforms, profile, scoring, vocabulary
from ds_jax.engine.engine import Engine
from ds_jax.engine.limits import Limits, replay_rule
from ds_jax.engine.loop import Loop
from ds_jax.engine.runner import Runner, place_params, scans_by_default
from ds_jax.errors import ConfigError, RequestError
from ds_jax.models import deepseek_v41, engram
from ds_jax.recipe import conversation, render
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import GenerateRequest, GenerateResult, SamplingParams, TokenEvent, Usage
from ds_jax.sharding.mesh import MeshSpec
from ds_jax.structured import backend
from ds_jax.structured.compiler import Compiler
from ds_jax.structured.vocabulary import prepared

CALIBRATION = "calibration.json"
CHUNK_TOKENS = (32, 64, 128, 512)  # of prefill, unless asked otherwise
TINY = pathlib.Path(__file__).parent / "assets" / "tiny"
Prompt = str | Sequence[int]


class Pipeline:
    """A loaded model on a mesh, behind an engine that serves any number of callers.

    Args:
      model: the text model's config.
      params: its parameters, one entry a layer.
      tokenizer: text to ids and back; None: prompts are token ids and results have no text.
      token_map: compressed id of every token id; needed where the model has Engram layers.
      mesh: such as "ep1", "ep8" or "ep2,dp8".
      numerics: "released", "float32" or the three switches.
      platform: "cpu", "cuda", "tpu" or the name of a PJRT plugin; None: what jax chooses.
      max_sequences: sequences a device holds at once.
      max_context: positions of a sequence, prompt and output together; None: the model's, at most
        4096.
      chunk_tokens: prefill chunk lengths; one of a page serves what a cached prefix leaves.
      scan_layers: scan over repeating layers; None: where the model is deep.
      cache_format: "packed", "dequantized" or "auto".
      page_tokens: tokens of a cache page.
      nextn: drafts a sequence and step, verified exactly; 0: none.
      varlen_verify: verify only the drafts that pay; else all.
      confidence_temperatures: calibration of the drafter's confidence, one a draft.
      canonical: tokens depend on nothing but the request: not on neighbours, hits or preemption.
      engine: further fields of `config.Engine`, such as `overlap` and `step_tokens`.
      cache: further fields of `config.Cache`, such as `pages`, `snapshots`, `replay`.
      fingerprint: names the weights; None: they are nobody else's.
      program_store: folder that keeps compiled steps across processes; None: they are not kept.

    Raises:
      ConfigError: a model, mesh, platform or tokenizer that cannot work.
    """

    def __init__(
        self,
        model: config.Model,
        params: deepseek_v41.Params,
        tokenizer: Tokenizer | None = None,
        *,
        token_map: np.ndarray | None = None,
        mesh: str = "ep1",
        numerics: str | config.Numerics = "released",
        platform: str | None = None,
        max_sequences: int = 8,
        max_context: int | None = None,
        chunk_tokens: tuple[int, ...] = CHUNK_TOKENS,
        scan_layers: bool | None = None,
        cache_format: str = "auto",
        page_tokens: int = 128,
        nextn: int = 0,
        varlen_verify: bool = False,
        confidence_temperatures: tuple[float, ...] = (),
        canonical: bool = False,
        engine: Mapping[str, Any] | None = None,
        cache: Mapping[str, Any] | None = None,
        fingerprint: bytes | None = None,
        program_store: pathlib.Path | None = None,
    ):
        spec, devices = platforms.open_mesh(mesh, platform)
        spec.check(model)
        choices = platforms.choose(devices, numerics, "auto", cache_format)
        limit = model.max_position_embeddings
        context = min(limit, 4096) if max_context is None else max_context
        if context > limit:
            raise ConfigError(
                f"max_context={context}: the model has max_position_embeddings={limit}; "
                "ask for at most that"
            )
        sizes = config.Engine(
            max_sequences,
            context,
            chunk_tokens,
            canonical=canonical,
            nextn=nextn,
            varlen_verify=varlen_verify,
            confidence_temperatures=confidence_temperatures,
            **(engine or {}),
        )
        config_rules.check_drafter(sizes, model)
        if nextn and params.drafter is None:
            raise ConfigError(f"nextn={nextn}: needs the drafter's parameters; load them as well")
        if not nextn:
            params = dataclasses.replace(params, drafter=None)
        storage = config.Cache(choices.cache_format, page_tokens, **(cache or {}))
        config_rules.check_canonical(sizes, storage)
        name = fingerprint or secrets.token_bytes(32)
        limits = Limits.plan(
            sizes,
            storage,
            ranks=devices.size,
            rule=replay_rule(model, storage),
            end_token_ids=frozenset({model.eos_token_id}),
            fingerprint=fingerprints.of(model, choices.numerics, sizes, storage, name),
        )
        stacked = scans_by_default(model) if scan_layers is None else scan_layers
        tables = None
        if model.engram_layer_ids:
            tables = engram.hash_tables(model, vocabulary.check_token_map(model, token_map))
        self.model = model
        self.tokenizer = tokenizer
        vocabulary.check_tokenizer(model, tokenizer)
        self.runner = Runner(
            model,
            choices.numerics,
            devices,
            place_params(model, params, devices, stacked=stacked),
            replicate(tables, devices),
            sizes,
            storage,
            program_store,
        )
        self.grammars: Compiler | None = None
        if tokenizer is not None:
            make = functools.partial(prepared, tokenizer, model.vocab_size)
            self.grammars = Compiler(make)
        self._open_engine(limits)
        self._store = program_store
        self._calls = itertools.count()
        self._scorer: Runner | None = None
        self._scoring = threading.Lock()  # it has one cache

    def _open_engine(self, limits: Limits) -> None:
        self.loop = Loop(self.runner, limits, overlap=self.runner.engine.overlap)
        detokenizer = None
        if self.tokenizer is not None:
            detokenizer = functools.partial(self.tokenizer.detokenizer, skip_control=True)
        self.engine = Engine(self.loop, detokenizer, self.grammars)

    def restart(self) -> Engine:
        """A new engine on the same weights and programs, in place of one that failed or was closed.

        Mutates: the old engine ends, and with it what it has cached.
        """
        self.engine.close()
        old = self.loop
        self.runner.reset()
        self._open_engine(old.scheduler.limits)
        self.loop.is_warm = old.is_warm
        if self.loop.speculation is not None and old.speculation is not None:
            self.loop.speculation.planners = old.speculation.planners
            self.loop.speculation.resting = old.speculation.resting
        return self.engine

    @classmethod
    def from_checkpoint(
        cls,
        path: str | pathlib.Path = "tiny",
        *,
        mesh: str = "ep1",
        numerics: str | config.Numerics = "released",
        weights: str = "auto",
        platform: str | None = None,
        program_cache: str | pathlib.Path | None = platforms.DEFAULT_CACHE,
        **options: Any,
    ) -> Pipeline:
        """Loads a checkpoint in the released layout.

        Args:
          path: folder with config.json, the tensors and tokenizer.json; "tiny": the embedded model.
          weights: "quantized" keeps FP8/FP4 in memory, "dequantized" expands them, "auto" expands
            them on CPU.
          program_cache: folder that keeps compiled programs, which are executed from there; None:
            jax's own setting.
          options: as for `Pipeline`.

        Raises:
          ConfigError, CheckpointError: what cannot be read or does not fit, before device work.
        """
        folder = TINY if str(path) == "tiny" else pathlib.Path(path)
        if not folder.is_dir():
            raise ConfigError(
                f"{folder}: is not a folder; give a checkpoint folder with config.json and "
                "tensors, or tiny"
            )
        model, _ = config.load(folder)
        MeshSpec.parse(mesh).check(model)
        store = platforms.keep_programs(program_cache)
        _, devices = platforms.open_mesh(mesh, platform)
        choices = platforms.choose(devices, numerics, weights, options.get("cache_format", "auto"))
        tokenizer, token_map = vocabulary.load(folder, model)
        drafts = bool(options.get("nextn", 0))
        if drafts:
            config_rules.check_drafter(config.Engine(nextn=options["nextn"]), model)
            options.setdefault("confidence_temperatures", calibrated(folder, options["nextn"]))
        params = loader.load(
            folder,
            model,
            weights=choices.weights,
            dtype=choices.dtype,
            mesh=devices,
            drafter=drafts,
        )
        options.setdefault("fingerprint", fingerprints.of_files(folder))
        return cls(
            model,
            params,
            tokenizer,
            token_map=token_map,
            mesh=mesh,
            numerics=numerics,
            platform=platform,
            program_store=store,
            **options,
        )

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None
    ) -> list[GenerateResult]:
        """Continues prompts: texts, or lists of token ids.

        Returns: one result a prompt, in order. A sequence whose step fails and a prompt that the
          replica refuses (too few pages, no such grammar) end alone, with an `error`.
        Raises: RequestError, before anything runs, naming the prompt: empty, longer than
          `max_context`, or an id out of range; why the replica refuses, if it refuses them all.
        """
        if isinstance(prompts, str) or (prompts and isinstance(prompts[0], (int, np.integer))):
            prompts = [prompts]  # type: ignore[list-item]
        requests = self.requests(prompts, params)  # type: ignore[arg-type]
        parts: list[list[TokenEvent]] = [[] for _ in requests]
        for event in self.events(requests):
            parts[int(event.request_id)].append(event)
        results = [self._result(r, p) for r, p in zip(requests, parts, strict=True)]
        refusals = [r.error for r in results if isinstance(r.error, RequestError)]
        if refusals and len(refusals) == len(results):  # nobody's result is lost
            raise refusals[0]
        return results

    def _result(self, request: GenerateRequest, events: Sequence[TokenEvent]) -> GenerateResult:
        last = events[-1]
        ids = tuple(e.token_id for e in events if e.token_id is not None)
        logprobs = tuple(e.logprob for e in events if e.logprob is not None)
        assert last.finish_reason is not None, "a sequence ends with its reason"
        return GenerateResult(
            text="".join(e.text or "" for e in events) if request.params.stop else self.text(ids),
            token_ids=ids,
            finish_reason=last.finish_reason,
            usage=last.usage or Usage(len(request.prompt_token_ids), len(ids)),
            logprobs=logprobs if request.params.top_logprobs is not None else None,
            prompt_logprobs=events[0].prompt_logprobs,
            error=last.error,
        )

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[str]:
        """The continuation in pieces of text as they come; never a part of a character."""
        if self.tokenizer is None:
            raise RequestError("streaming text needs a tokenizer; use generate with token ids")
        return self._pieces(self.requests([prompt], params), self.tokenizer)

    def _pieces(self, requests: Sequence[GenerateRequest], tokenizer: Tokenizer) -> Iterator[str]:
        detokenizer = tokenizer.detokenizer(skip_control=True)
        stops = bool(requests[0].params.stop)  # the engine then tells the text, cut in front of it
        for event in self.events(requests):
            if event.error is not None:
                raise event.error
            piece = event.text
            if not stops and event.token_id is not None:
                piece = detokenizer.push([event.token_id])
            if piece:
                yield piece
        rest = detokenizer.finish()
        if rest:
            yield rest

    def chat(
        self, message: str, params: SamplingParams | None = None, *, thinking: bool = False
    ) -> GenerateResult:
        """Answers one user message."""
        return self.generate([self.chat_prompt(message, thinking=thinking)], params)[0]

    def chat_prompt(self, message: str, *, thinking: bool = False) -> list[int]:
        """Token ids of a conversation with one user turn, up to where the model answers."""
        if self.tokenizer is None:
            raise RequestError("a conversation needs a tokenizer; give token ids instead")
        turn = conversation.Conversation(
            (conversation.UserMessage(message),), thinking_mode=thinking
        )
        return self.tokenizer.encode_segments(render.render(turn).segments)

    def score(self, token_ids: Sequence[int]) -> Float[np.ndarray, "T V"]:
        """Teacher-forced float32 logits of every position; in a cache of its own.

        Threads that score at the same time wait for each other.
        """
        (request,) = self.requests([token_ids], SamplingParams(max_tokens=1), room=0)
        with self._scoring:
            if self._scorer is None:
                self._scorer = self.runner.with_one_slot()
            return scoring.score(self._scorer, request.prompt_token_ids)

    def trace(self, token_ids: Sequence[int]) -> dict[str, np.ndarray]:
        """Named intermediates of one forward pass without a cache: see `tracing.trace`."""
        (request,) = self.requests([token_ids], SamplingParams(max_tokens=1), room=0)
        return tracing.trace(self.runner, request.prompt_token_ids)

    def requests(
        self, prompts: Iterable[Prompt], params: SamplingParams | None, room: int = 1
    ) -> list[GenerateRequest]:
        """Checked requests, named by their number; `room` positions must be left for output."""
        params = params or SamplingParams()
        context = self.runner.engine.max_context
        made = []
        for number, prompt in enumerate(prompts):
            ids = self.token_ids(prompt)
            vocabulary.check_prompt(ids, number, self.model, context, room)
            made.append(GenerateRequest(str(number), ids, params))
        return made

    def events(self, requests: Sequence[GenerateRequest]) -> Iterator[TokenEvent]:
        """Runs requests and yields their tokens as they come, sequences interleaved.

        Several threads may do so at the same time; ids need only differ within one call.
        """
        call = next(self._calls)
        names = {f"{call}:{number}": r.request_id for number, r in enumerate(requests)}
        asked = [
            dataclasses.replace(r, request_id=name) for name, r in zip(names, requests, strict=True)
        ]
        for event in self.engine.run(asked):
            yield dataclasses.replace(event, request_id=names[event.request_id])

    def stats(self) -> dict[str, int | float]:
        """Counters of the engine, and medians of its newest steps: `Engine.stats`."""
        return self.engine.stats()

    def close(self) -> None:
        """Ends the engine's thread; the pipeline can still score and trace."""
        self.engine.close()

    def token_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a prompt; text starts with the begin token."""
        if not isinstance(prompt, str):
            return tuple(int(i) for i in prompt)
        if self.tokenizer is None:
            raise RequestError("the checkpoint has no tokenizer.json; give prompts as token ids")
        if not prompt:
            return ()
        return (self.model.bos_token_id, *self.tokenizer.encode_text(prompt))

    def text(self, token_ids: Sequence[int]) -> str:
        """Text of generated ids without control tokens; empty where there is no tokenizer."""
        if self.tokenizer is None:
            return ""
        return self.tokenizer.decode(token_ids, skip_control=True)

    def warm_up(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Compiles every program that generating can need; returns how many steps that are.

        To be called while nothing is under way: it shares the runner with the engine's thread.

        Args:
          progress: told how many steps are there, and of how many, once for each.
        """
        masked = self.grammars is not None and backend.is_installed()
        if self.grammars is not None and masked:
            self.grammars.vocabulary()
        keys, programs = self.runner.buckets.keys(), self.runner.programs
        programs.ask(keys)
        for done, key in enumerate(keys, 1):
            programs.get(key)
            if progress is not None:
                progress(done, len(keys))
        count = self.runner.warm_up(keys, masked=masked)
        if self.runner.engine.varlen_verify and self.loop.speculation is not None:
            verify = [key for key in keys if key.verify_rows]
            self.loop.speculation.learn(profile.curve(self.runner, verify, self._store))
        self.loop.is_warm = True
        return count


def calibrated(folder: pathlib.Path, drafts: int) -> tuple[float, ...]:
    """Temperatures of a checkpoint's confidence for the first drafts; none where it tells none.

    Raises:
      ConfigError: the file does not hold one number above 0 for each draft.
    """
    path = folder / CALIBRATION
    if not path.is_file():
        return ()
    try:
        found = [float(t) for t in json.loads(path.read_text())["confidence_temperatures"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: holds no confidence_temperatures ({error})") from None
    if len(found) < drafts:
        raise ConfigError(
            f"{path}: has {len(found)} confidence_temperatures for nextn={drafts} drafts; "
            "calibrate again or remove the file"
        )
    return tuple(found[:drafts])


def replicate(tables: engram.HashTables | None, mesh: Mesh) -> engram.HashTables | None:
    """Hash constants on every device."""
    if tables is None:
        return None
    return jax.device_put(tables, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
