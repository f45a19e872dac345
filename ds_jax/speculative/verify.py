"""Which drafts are accepted, and the token behind them: the target's law, exactly.

Decides acceptance. Never runs a model, never decides how many drafts are verified.
In: the target's logits of packed rows, drafts and their laws. Out: accepted drafts and one more
token of each sequence.

Row k - 1 of a sequence judges its draft k. From left to right until the first rejection:

| sequence | accepted if | token behind |
|---|---|---|
| greedy, coupled | it is the token that plain decoding takes there | that token |
| else | u < min(1, p / q) | rejected: a draw from max(p - q, 0); none rejected: one from p |

So greedy and coupled sequences get plain decoding's tokens, whatever is drafted.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ds_jax.sampling import sample
from ds_jax.speculative import draws, ragged


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of the drafts of R sequences."""

    accepted: jax.Array  # [R] int32
    token: jax.Array  # [R] int32, the token behind the accepted drafts
    accept_prob: jax.Array  # [R K] f32, probability that a draft is accepted; 0: not verified
    final: jax.Array  # [R] int32, the row it was drawn from


def ratio(log_p: Float[Array, "*s"], log_q: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """min(1, p / q) of a draft: the probability that it is accepted."""
    return jnp.exp(jnp.minimum(0.0, log_p - log_q))


def residual(p: Float[Array, "*s V"], q: Float[Array, "*s V"]) -> Float[Array, "*s V"]:
    """max(p - q, 0), not normalised: what a token instead of a rejected draft is drawn from.

    Where nothing is left, by rounding, it is p: then p = q and no draft is rejected.
    """
    left = jnp.maximum(p - q, 0.0)
    return jnp.where(jnp.sum(left, axis=-1, keepdims=True) > 0, left, p)


def prefix(passes: Bool[Array, " T"], rows: ragged.Rows, drafts: int) -> Int[Array, " R"]:
    """Drafts accepted from the left: those in front of the first row that does not pass."""
    verified = jnp.arange(drafts)[None, :] < rows.lengths[:, None]
    alive = jnp.cumprod((ragged.take(passes, rows, drafts) & verified).astype(jnp.int32), axis=1)
    return jnp.sum(alive, axis=1, dtype=jnp.int32)


def rows_controls(
    controls: sample.Controls, of: Int[Array, " T"], within: Int[Array, " T"]
) -> sample.Controls:
    """Controls of T rows from those of their sequences `of`.

    Args:
      controls: of R sequences; position: of their anchors.
      within: how far a row is behind its anchor; what is drawn stands one further.
    """
    return sample.Controls(
        temperature=controls.temperature[of],
        top_p=controls.top_p[of],
        top_k=controls.top_k[of],
        seed=controls.seed[of],
        position=controls.position[of] + within + 1,
    )


@jax.named_scope("verify")
def verify(
    logits: Float[Array, "T V"],
    rows: ragged.Rows,
    controls: sample.Controls,
    coupled: Bool[Array, " R"],
    drafts: Int[Array, "R K"],
    log_q: Float[Array, "R K V"],
) -> Verdict:
    """Judges all drafts at once.

    Args:
      logits: of the target; row t is that of `rows.within[t]` tokens behind the anchor.
      controls: of the R sequences; position: of the anchors.
      drafts: a negative one is always rejected.
      log_q: their laws; not read where greedy or coupled.
    Cost: three passes over T V beside that of `sample`; greedy steps only pay for `sample`.
    """
    r, k = drafts.shape
    of = rows.sequence
    each = rows_controls(controls, of, rows.within)
    plain = sample.sample(logits, each)
    place = jnp.minimum(rows.within, k - 1)
    draft = drafts[of, place]
    judged = rows.valid & (rows.within < rows.lengths[of])
    match = (draft == plain) & (draft >= 0)
    by_law = (controls.temperature > 0) & ~coupled

    def test() -> tuple[jax.Array, jax.Array, jax.Array]:
        log_p, law = draws.log_law(logits, each), log_q[of, place]
        at = jnp.maximum(draft, 0)[:, None]
        mine = jnp.take_along_axis(log_p, at, 1)[:, 0], jnp.take_along_axis(law, at, 1)[:, 0]
        passes = draws.uniforms(each.seed, each.position) < ratio(*mine)
        overlap = jnp.sum(jnp.minimum(jnp.exp(log_p), jnp.exp(law)), axis=-1)
        return passes & (draft >= 0), jnp.where(draft >= 0, overlap, 0.0), log_p

    def no_test() -> tuple[jax.Array, jax.Array, jax.Array]:
        return match, match.astype(jnp.float32), jnp.zeros(logits.shape, jnp.float32)

    passes, prob, log_p = lax.cond(by_law.any(), test, no_test)
    mine = by_law[of]
    passes = judged & jnp.where(mine, passes, match)
    prob = jnp.where(judged, jnp.where(mine, prob, match.astype(jnp.float32)), 0.0)
    accepted = prefix(passes, rows, k)
    final = rows.first + accepted

    def instead() -> jax.Array:
        here = jnp.arange(r), jnp.minimum(accepted, k - 1)
        q = jnp.where((drafts[here] < 0)[:, None], 0.0, jnp.exp(log_q[here]))
        left = jnp.log(residual(jnp.exp(log_p[final]), q))
        stream = jnp.full(r, draws.RESIDUAL, jnp.int32)
        where = controls.position + accepted + 1
        return sample.largest(left + draws.noise(controls.seed, where, stream, left.shape[1]))

    rejected = accepted < rows.lengths
    use = rejected & by_law
    token = plain[final]
    token = jnp.where(use, lax.cond(use.any(), instead, lambda: token), token)
    verified = jnp.arange(k)[None, :] < rows.lengths[:, None]
    return Verdict(accepted, token, jnp.where(verified, ragged.take(prob, rows, k), 0.0), final)
