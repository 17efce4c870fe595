"""Trying again what the network did not let through."""

from __future__ import annotations

import random
from functools import partial
from logging import WARNING

import httpx
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.retry.retry_invoker import RetryState

FIRST, LONGEST = 0.1, 5  # seconds until a request is tried again

# the pieces of a message; one that is still on its way is asked for again, sooner than Flower does
pull_pieces = partial(pull_objects, initial_backoff=0.02, backoff_cap=1.0)


def patient() -> RetryInvoker:
    """Tries a request again for as long as it takes, unless the certificate is wrong."""

    def tell(state: RetryState) -> None:
        if state.tries == 1:
            log(WARNING, "The SuperLink is not answering: %s", state.exception)

    return RetryInvoker(
        wait_gen_factory=lambda: exponential(FIRST, 1.3, LONGEST),
        recoverable_exceptions=httpx.TransportError,
        max_tries=None,
        max_time=None,
        on_backoff=tell,
        should_giveup=lambda error: "certificate" in str(error).lower(),
        jitter=lambda pause: pause * random.uniform(0.8, 1.2),
    )
