"""Trying again what the network did not let through."""

from __future__ import annotations

import random
from collections.abc import Generator
from functools import partial
from logging import WARNING

import httpx
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.retry import RetryInvoker, exponential, make_simple_http_retry_invoker
from flwr.supercore.retry.retry_invoker import RetryState

FIRST, LONGEST = 0.1, 5  # seconds until a request is tried again

# the pieces of a message; one that is still on its way is asked for again, sooner than Flower does
pull_pieces = partial(pull_objects, initial_backoff=0.02, backoff_cap=1.0)


def pauses() -> Generator[float, None, None]:
    """Seconds to wait before each new try."""
    return exponential(FIRST, 1.3, LONGEST)


def patient(
    error: type[Exception] = httpx.TransportError, seconds: float | None = None
) -> RetryInvoker:
    """Tries again what ends with such an error, after growing pauses: for so many seconds, else for
    as long as it takes; but not if the certificate is wrong."""

    def tell(state: RetryState) -> None:
        if state.tries == 1:
            log(WARNING, "Trying again, as the SuperLink did not answer: %s", state.exception)

    return RetryInvoker(
        wait_gen_factory=pauses,
        recoverable_exceptions=error,
        max_tries=None,
        max_time=seconds,
        on_backoff=tell,
        should_giveup=lambda error: "certificate" in str(error).lower(),
        jitter=lambda pause: pause * random.uniform(0.8, 1.2),
    )


def patient_app() -> RetryInvoker:
    """Flower's own for the server's app, which also ends it with its run, but with our pauses."""
    made = make_simple_http_retry_invoker()
    made.wait_gen_factory = pauses
    return made
