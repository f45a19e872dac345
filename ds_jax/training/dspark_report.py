"""What drafts are worth: held-out dialogues answered with all drafts verified.

Decides which figures are formed. Never trains. In: a pipeline with drafts. Out: a `Report`, and
temperatures that calibrate the confidence.

Acceptance is what the engine really did: drafts drawn by the drafter, judged by the target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ds_jax.errors import ConfigError
from ds_jax.pipeline import Pipeline
from ds_jax.records import SamplingParams
from ds_jax.speculative import calibration


@dataclasses.dataclass(frozen=True)
class Report:
    """Figures of N verified blocks of K drafts.

    Attributes:
      blocks: N.
      accepted_length: tokens a step and sequence, the one behind the drafts included.
      reached: share of blocks whose first k drafts were all accepted, by k.
      accepted: share of drafts k accepted where those before it were, by k.
      auc: of the confidence of draft k where those before it were accepted, by k.
      auc_all: the same, all positions together.
      error_before, error_after: calibration errors of the survivals at temperature 1 and at
        `temperatures`, which were fitted on the other half of the blocks.
      temperatures: fitted on all blocks.
    """

    blocks: int
    accepted_length: float
    reached: tuple[float, ...]
    accepted: tuple[float, ...]
    auc: tuple[float, ...]
    auc_all: float
    error_before: tuple[float, ...]
    error_after: tuple[float, ...]
    temperatures: tuple[float, ...]

    def table(self) -> str:
        """The figures as a Markdown table."""
        lines = [
            f"{self.blocks} blocks, {self.accepted_length:.2f} tokens a step, confidence AUC "
            f"{self.auc_all:.3f}",
            "",
            "| draft | all up to it accepted | accepted if those before are | AUC | error | "
            "calibrated | temperature |",
            "|---|---|---|---|---|---|---|",
        ]
        for k in range(len(self.reached)):
            lines.append(
                f"| {k + 1} | {self.reached[k]:.3f} | {self.accepted[k]:.3f} | {self.auc[k]:.3f} | "
                f"{self.error_before[k]:.3f} | {self.error_after[k]:.3f} | "
                f"{self.temperatures[k]:.2f} |"
            )
        return "\n".join(lines)


def measure(pipeline: Pipeline, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Report:
    """Answers prompts and looks at every block that was verified whole.

    Raises:
      ConfigError: the pipeline makes no drafts, or verifies only some of them.
    """
    speculation = pipeline.loop.speculation
    if speculation is None or pipeline.runner.engine.varlen_verify:
        raise ConfigError("a report needs all drafts verified: give nextn, and no varlen_verify")
    speculation.samples = []
    pipeline.generate([list(p) for p in prompts], params)
    found, speculation.samples = speculation.samples, None
    if not found:
        raise ConfigError("no block was verified: the answers are too short")
    sure = np.array([s for s, _ in found], np.float64)
    accepted = np.array([a for _, a in found])
    return form(sure, accepted)


def form(sure: np.ndarray, accepted: np.ndarray) -> Report:
    """Figures from confidences at temperature 1 [N K] and accepted drafts [N]."""
    count = sure.shape[1]
    logits = np.log(np.clip(sure, 1e-7, 1 - 1e-7)) - np.log1p(-np.clip(sure, 1e-7, 1 - 1e-7))
    prefix = (accepted[:, None] > np.arange(count)[None, :]).astype(np.float64)
    asked = accepted[:, None] >= np.arange(count)[None, :]  # those before it were accepted
    right = prefix.sum(0) / np.maximum(asked.sum(0), 1)
    auc = [calibration.auc(sure[asked[:, k], k], prefix[asked[:, k], k]) for k in range(count)]
    first, second = slice(0, None, 2), slice(1, None, 2)
    fitted = calibration.fit(logits[first], prefix[first])
    ones, tested = np.ones(count), prefix[second]
    before = calibration.survivals(logits[second], ones)
    after = calibration.survivals(logits[second], fitted.temperatures)
    whole = calibration.fit(logits, prefix)
    return Report(
        blocks=len(sure),
        accepted_length=float(accepted.mean() + 1),
        reached=tuple(prefix.mean(0).tolist()),
        accepted=tuple(right.tolist()),
        auc=tuple(auc),
        auc_all=calibration.auc(sure[asked], prefix[asked]),
        error_before=tuple(calibration.error(before[:, k], tested[:, k]) for k in range(count)),
        error_after=tuple(calibration.error(after[:, k], tested[:, k]) for k in range(count)),
        temperatures=tuple(whole.temperatures.tolist()),
    )
