"""Settling and claiming, whatever the database answers to it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Protocol

import psycopg

from ._exchange import Ask, Exchange
from ._leases import Leases
from ._log import log, note
from ._outage import UNREACHABLE, Outage, one_line
from ._settlements import Settlement
from ._watch import Unanswered

REFUSALS = 3
"""After so many a claim is left to its lease: its end cannot be written."""
ALONE = 2.0
"""Seconds for the call of a single end, when one of many has kept the others waiting."""

# A server that will not write now may do so soon: it is a standby about to be promoted.
AWAY = (*UNREACHABLE, psycopg.errors.ReadOnlySqlTransaction)
# It has answered, though psycopg counts these among them: one call of many is at fault.
STUCK = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)


class Owner(Protocol):
    """Who holds the claims."""

    @property
    def hurried(self) -> bool:
        """Whether to try nothing any more."""
        ...

    def claimed(self, ask: Ask, sent_at: float) -> None:
        """Jobs have come."""

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Answers have come."""

    def put_back(self, settlements: Sequence[Settlement]) -> None:
        """They are to be sent again."""

    def given_up(self, settlement: Settlement) -> None:
        """It cannot be carried out."""


class Trader:
    """Sends what the dispatcher wants; what fails comes back later, and stops nothing else."""

    def __init__(self, exchange: Exchange, leases: Leases, outage: Outage, owner: Owner) -> None:
        self._exchange = exchange
        self._leases = leases
        self._outage = outage
        self._owner = owner
        self.resume_at = 0.0
        """Until then the database is left alone."""

    def trade(self, settlements: Sequence[Settlement], asks: Sequence[Ask]) -> None:
        """Settle and claim."""
        if not settlements and not asks:
            return
        try:
            self._trade(settlements, asks)
        except BaseException:
            # Ctrl-C, most likely: what was not answered is to be told before the end.
            unanswered = [one for one in settlements if one.answer is None]
            for settlement in unanswered:
                settlement.sent = True
            self._owner.put_back(unanswered)
            raise

    def check(self, queues: Sequence[str]) -> bool:
        """Whether the database answers; VersionMismatch or QueueNotFound if it lacks something."""
        try:
            self._exchange.check(queues)
        except AWAY as error:
            self._pause(error)
            return False
        self._outage.over("worker")
        return True

    def _trade(
        self, settlements: Sequence[Settlement], asks: Sequence[Ask], patience: float = math.inf
    ) -> None:
        sent_at = time.monotonic()
        error = self._try(settlements, asks, patience)
        for ask in asks:
            if ask.answered:
                self._owner.claimed(ask, sent_at)
        self._owner.settled([one for one in settlements if one.answer is not None])
        if error is None:
            return
        settlements = [one for one in settlements if one.answer is None]
        asks = [ask for ask in asks if not ask.answered]
        away = isinstance(error, AWAY) and not isinstance(error, STUCK)
        if away:
            for settlement in settlements:
                settlement.sent = True
        if self._owner.hurried:
            self._owner.put_back(settlements)
            return
        if isinstance(error, Unanswered) and self._answers():
            error = TimeoutError("no answer, though others get theirs: who holds a lock?")
            away, patience = False, ALONE
        if away:
            self._pause(error)
            self._owner.put_back(settlements)
            for ask in asks:
                ask.source.look_again()
        elif len(settlements) + len(asks) == 1:
            self._refused(error, settlements, asks)
        else:
            self._one_by_one(settlements, asks, patience)

    def _one_by_one(
        self, settlements: Sequence[Settlement], asks: Sequence[Ask], patience: float
    ) -> None:
        """One of them is at fault: the others must not suffer for it."""
        if settlements and asks:
            self._trade(settlements, [], patience)
        else:
            # They wait for each other now, so that their leases are to be renewed meanwhile.
            self._leases.not_settled([one.job for one in settlements])
            for settlement in settlements:
                if all(self._leases.settling([settlement.job])):
                    self._trade([settlement], [], patience)
        for ask in asks:
            self._trade([], [ask])

    def _try(
        self, settlements: Sequence[Settlement], asks: Sequence[Ask], patience: float
    ) -> Exception | None:
        try:
            self._exchange.run(settlements, asks, patience)
        except Exception as error:
            return error
        self._outage.over("worker")
        return None

    def _answers(self) -> bool:
        try:
            self._exchange.check(())
        except Exception:
            return False
        return True

    def _pause(self, error: Exception) -> None:
        self.resume_at = time.monotonic() + self._outage.failed("worker", error)

    def _refused(
        self, error: Exception, settlements: Sequence[Settlement], asks: Sequence[Ask]
    ) -> None:
        """The one call that was made can't be carried out."""
        for ask in asks:
            ask.source.failed()
            if not ask.source.told:
                ask.source.told = True
                log.error("queue %s: cannot claim: %s", ask.source.name, one_line(error))
        for settlement in settlements:
            if settlement.verb == "ack" and settlement.result is not None:
                # The work is done, and that is what counts. It may have been changed meanwhile.
                why = one_line(error)
                note(logging.WARNING, settlement.job, ": its result is not kept: %s", why)
                settlement.result = None
                self._owner.put_back([settlement])
                continue
            settlement.refused += 1
            if settlement.refused < REFUSALS:
                self._owner.put_back([settlement])
                continue
            self._owner.given_up(settlement)
            note(
                logging.ERROR,
                settlement.job,
                ": cannot %s it: %s",
                *(settlement.verb, one_line(error)),
            )
