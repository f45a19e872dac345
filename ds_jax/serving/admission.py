"""Who may use the engine now, who waits, and who is sent away.

Decides admission, the order of those who wait, and what a refusal advises. Never knows sockets,
event loops or a clock: every method takes the time. In: requests that come and go. Out: waiters
that are admitted, or `Overloaded`.

Order: a higher priority class first. Inside a class the keys share the engine fairly: each key has
a virtual time that grows by cost / weight with every request admitted, and the key that is furthest
behind comes next (start-time fair queueing). A key's own requests stay in order of arrival.

What a refusal advises comes from the backlog: places ahead, times how long a place has been held
lately, divided by the places there are.
"""

from __future__ import annotations

import collections
import dataclasses

from ds_jax.serving.keys import Principal
from ds_jax.serving.quota import Account

FIRST_HOLD_S = 1.0  # how long a place is held, until one was given back
SHARE = 0.1  # of the newest time in the running mean


class Overloaded(Exception):
    """Not now.

    Attributes:
      reason: `queue_full`, `deadline`, `concurrency`, `quota_requests`, `quota_tokens`.
      retry_after_s: when another attempt has a chance.
      message: for the client.
    """

    def __init__(self, reason: str, retry_after_s: float, message: str):
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.message = message


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Places in the engine, places in the queue, and the longest wait in seconds."""

    max_running: int
    max_waiting: int
    max_wait_s: float


@dataclasses.dataclass(eq=False, slots=True)
class Waiter:
    """One request, from its arrival to its end.

    Attributes:
      principal: whose it is.
      sequences: places it takes.
      cost: tokens it is expected to use.
      number: in the order of arrival.
      since: when it came, and from its admission on, when that was.
      admitted: it has its places.
      gone: it has left.
    """

    principal: Principal
    sequences: int
    cost: float
    number: int
    since: float
    admitted: bool = False
    gone: bool = False


class Admission:
    """Methods mutate it. Complexity: each call visits the keys that wait, at most."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.running = 0  # places taken
        self.num_waiting = 0
        self.hold_s = FIRST_HOLD_S
        self._waiting_places = 0
        self._count = 0
        self._queues: dict[int, dict[str, collections.deque[Waiter]]] = {}
        self._virtual: dict[str, float] = {}
        self._clock: dict[int, float] = {}
        self._live: collections.Counter[str] = collections.Counter()
        self._accounts: dict[Principal, Account] = {}

    def offer(
        self,
        principal: Principal,
        sequences: int,
        cost: float,
        now: float,
        deadline_s: float | None = None,
    ) -> Waiter:
        """A request arrives; it is admitted at once or waits.

        Args:
          sequences: places it takes; more than there are count as all.
          cost: tokens it is expected to use.
          deadline_s: it is of no use after these seconds.

        Raises: Overloaded.
        """
        self._check_quotas(principal, cost, now)
        sequences = min(sequences, self.limits.max_running)
        fits = not self.num_waiting and self.running + sequences <= self.limits.max_running
        if not fits:
            self._check_room(sequences, principal, deadline_s)
        account = self.account(principal, now)
        if account.requests is not None:
            account.requests.take(1, now)
        if account.tokens is not None:
            account.tokens.take(cost, now)
        self._count += 1
        self._live[principal.name] += 1
        waiter = Waiter(principal, sequences, cost, self._count, now)
        if fits:
            self._admit(waiter, now)
        else:
            queues = self._queues.setdefault(principal.priority, {})
            queues.setdefault(principal.name, collections.deque()).append(waiter)
            self.num_waiting += 1
            self._waiting_places += sequences
            if self._furthest_behind() is waiter:  # it may fit where a lower class waits for more
                self._next(now, most=1)
        return waiter

    def leave(self, waiter: Waiter, now: float, used: float | None = None) -> list[Waiter]:
        """A request has ended or given up.

        Args:
          used: tokens it really used; None: as many as expected.

        Returns: those who are admitted now.
        """
        assert not waiter.gone, "a request leaves once"
        waiter.gone = True
        name = waiter.principal.name
        self._live[name] -= 1
        if not self._live[name]:
            del self._live[name]
        if used is not None:
            account = self.account(waiter.principal, now)
            if account.tokens is not None:
                account.tokens.take(used - waiter.cost, now)
            if waiter.admitted and name in self._virtual:
                self._virtual[name] += (used - waiter.cost) / waiter.principal.weight
        if waiter.admitted:
            self.running -= waiter.sequences
            self.hold_s += SHARE * (now - waiter.since - self.hold_s)
        else:
            self.num_waiting -= 1
            self._waiting_places -= waiter.sequences
            queues = self._queues[waiter.principal.priority]
            queues[name].remove(waiter)
            self._trim(waiter.principal.priority, name)
        return self._next(now)

    def account(self, principal: Principal, now: float) -> Account:
        """The quotas of a key."""
        account = self._accounts.get(principal)
        if account is None:
            requests, tokens = principal.requests_per_minute, principal.uncached_tokens_per_minute
            account = Account.open(requests, tokens, now)
            for other in [p for p in self._accounts if p.name == principal.name]:
                del self._accounts[other]  # the key's limits have changed
            self._accounts[principal] = account
        return account

    def foreseen_wait_s(self, sequences: int) -> float:
        """How long the last in the queue would wait."""
        places = self._waiting_places + sequences
        return places * self.hold_s / self.limits.max_running

    def _check_quotas(self, principal: Principal, cost: float, now: float) -> None:
        most = principal.max_concurrent
        if most is not None and self._live[principal.name] >= most:
            raise Overloaded(
                "concurrency",
                self.hold_s,
                f"this key has {most} requests under way, as many as it may have at once; wait "
                "for one of them to end",
            )
        account = self.account(principal, now)
        for reason, bucket, amount, unit in (
            ("quota_requests", account.requests, 1, "requests"),
            ("quota_tokens", account.tokens, cost, "uncached tokens"),
        ):
            wait = 0.0 if bucket is None else bucket.wait_s(amount, now)
            if bucket is not None and wait > 0:
                raise Overloaded(
                    reason,
                    wait,
                    f"this key may use {bucket.per_minute:.0f} {unit} a minute; try again in "
                    f"{wait:.1f} s",
                )

    def _check_room(self, sequences: int, principal: Principal, deadline_s: float | None) -> None:
        wait = self.foreseen_wait_s(sequences)
        if self.num_waiting >= self.limits.max_waiting:
            raise Overloaded(
                "queue_full",
                wait,
                f"{self.num_waiting} requests wait already, as many as may; try again in "
                f"{wait:.1f} s",
            )
        most = self.limits.max_wait_s if deadline_s is None else min(deadline_s, 1e9)
        if principal.priority <= 0 and wait > most:
            raise Overloaded(
                "deadline",
                wait - most,
                f"the wait would be about {wait:.1f} s, longer than the {most:g} s there are; try "
                f"again in {wait - most:.1f} s",
            )

    def _next(self, now: float, most: int | None = None) -> list[Waiter]:
        admitted: list[Waiter] = []
        while self.num_waiting and len(admitted) != most:
            waiter = self._furthest_behind()
            if self.running + waiter.sequences > self.limits.max_running:
                break
            priority, name = waiter.principal.priority, waiter.principal.name
            self._queues[priority][name].popleft()
            self._trim(priority, name)
            self.num_waiting -= 1
            self._waiting_places -= waiter.sequences
            self._admit(waiter, now)
            admitted.append(waiter)
        return admitted

    def _furthest_behind(self) -> Waiter:
        priority = max(self._queues)
        clock = self._clock.get(priority, 0.0)
        queues = self._queues[priority]

        def order(name: str) -> tuple[float, int]:
            return max(self._virtual.get(name, 0.0), clock), queues[name][0].number

        return queues[min(queues, key=order)][0]

    def _admit(self, waiter: Waiter, now: float) -> None:
        principal = waiter.principal
        name, priority = principal.name, principal.priority
        start = max(self._virtual.get(name, 0.0), self._clock.get(priority, 0.0))
        self._clock[priority] = start
        self._virtual[name] = start + waiter.cost / principal.weight
        self.running += waiter.sequences
        waiter.admitted, waiter.since = True, now
        if len(self._virtual) > 4096:  # those that are not ahead of the clock start at it anyway
            low = min(self._clock.values())
            self._virtual = {n: v for n, v in self._virtual.items() if v > low}

    def _trim(self, priority: int, name: str) -> None:
        queues = self._queues[priority]
        if not queues[name]:
            del queues[name]
        if not queues:
            del self._queues[priority]
