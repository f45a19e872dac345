"""How much a key may use.

Decides quotas on requests and on uncached tokens (those of a prompt that had to be computed, and
those generated). Never knows a clock or a request. In: amounts and times. Out: waits in seconds.

A bucket holds a minute's worth and refills evenly. What a request will cost is only known at its
end, so an estimate is taken at once and corrected later: a level may fall below zero, and nobody
is let in before it is above again.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Bucket:
    """An amount that refills. Methods mutate it.

    Attributes:
      per_minute: refill, and the most it holds.
      level: what is there now.
      at: when that was, in seconds.
    """

    per_minute: float
    level: float
    at: float

    @classmethod
    def full(cls, per_minute: float, now: float) -> Bucket:
        """A bucket from which nothing was taken."""
        return cls(per_minute, per_minute, now)

    def refill(self, now: float) -> None:
        """Adds what has come since the last call."""
        gain = (now - self.at) * self.per_minute / 60
        self.level = min(self.per_minute, self.level + gain)
        self.at = now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` (at most a full bucket) is there; 0: it is."""
        self.refill(now)
        missing = min(amount, self.per_minute) - self.level
        return max(0.0, missing * 60 / self.per_minute)

    def take(self, amount: float, now: float) -> None:
        """Takes an amount, or with a negative one gives it back."""
        self.refill(now)
        self.level = min(self.per_minute, self.level - amount)

    def reset_s(self, now: float) -> float:
        """Seconds until it is full."""
        return self.wait_s(self.per_minute, now)


@dataclasses.dataclass(slots=True)
class Account:
    """The buckets of one key; None: no limit."""

    requests: Bucket | None
    tokens: Bucket | None

    @classmethod
    def open(
        cls, requests_per_minute: float | None, tokens_per_minute: float | None, now: float
    ) -> Account:
        """An account from which nothing was taken."""
        return cls(
            None if requests_per_minute is None else Bucket.full(requests_per_minute, now),
            None if tokens_per_minute is None else Bucket.full(tokens_per_minute, now),
        )

    def headers(self, now: float) -> list[tuple[bytes, bytes]]:
        """`x-ratelimit-*` headers; none without limits."""
        found: list[tuple[bytes, bytes]] = []
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is None:
                continue
            reset = bucket.reset_s(now)
            for kind, value in (
                ("limit", f"{bucket.per_minute:.0f}"),
                ("remaining", f"{max(0.0, bucket.level):.0f}"),
                ("reset", f"{reset:.3f}s"),
            ):
                found.append((f"x-ratelimit-{kind}-{name}".encode(), value.encode()))
        return found
