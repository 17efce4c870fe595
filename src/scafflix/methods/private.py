"""Any method with differential privacy for its clients: what a client reached in a round is
clipped around where it began, and Gaussian noise is added, before anything is made of it.

The noise is on the local iterate, not on the message: `upload` and `commit` both go on from the
noisy one, so that what a method keeps between clients and server, such as sum_i alpha_i h_i = 0,
holds as without noise; and all that a client remembers of it is as noisy as what it has sent.

Or the server adds the noise. Messages m_j = x + d_j with ||d_j|| <= c, of which the client's part
in their weighted mean is w_j d_j / W: the weights and their sum W = sum_j w_j do not depend on
data, so that W is the same if one client contributes nothing, and the mean then moves by at most

    w_i c / W.

Clients that each add z c / sqrt(m) give the mean noise of the standard deviation

    sigma = z c sqrt(mean_j w_j^2) / W,

and this is what the server adds: to whoever sees the models both are the same mechanism, with the
noise multiplier sigma W / (w_i c) = z sqrt(mean_j w_j^2) / w_i for client i. (With equal weights
sigma is z c / m.) What the clients keep has no noise then: it must not reach a message but through
what is clipped, and must not have to fit the mean. `disclosure.py` sees to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from scafflix.core.arguments import choice, instance
from scafflix.core.errors import ScafflixError
from scafflix.gradients import Private
from scafflix.methods.disclosure import Chosen, check_examples, what_travels
from scafflix.methods.method import Client, Local, Message, Method, Number, fitted
from scafflix.methods.remembering import remembering
from scafflix.privacy.terms import PLACES, Release, checked_release
from scafflix.theory import NO_RATE

Inner = Callable[..., Any]  # a function of the method itself
NOISE = 1  # the part of a client's own stream that its noise comes from


def private(method: Method, clip: float, noise: float, noise_at: str = "client") -> Method:
    """The method with client-level privacy: its differences clipped to the norm `clip`, and
    Gaussian noise of standard deviation `noise` times `clip` in the sum over the clients of a
    round, of which each adds its part, or the server all of it (`noise_at`)."""
    instance("method", method, Method, "a method, such as sx.scafflix(plan)")
    if isinstance(method.gradient, Private):
        raise ScafflixError(
            "The method's gradients are private already, for each example; leave out one of the "
            "two."
        )
    choice("noise_at", noise_at, PLACES)
    release = Release(*checked_release(clip, noise), noise_at)
    changes = np.isfinite(release.clip) or release.noise > 0
    rate = NO_RATE if changes else method.rate  # no theorem covers clipped updates
    return replace(method, release=release, rate=rate)


class Clip(NamedTuple):
    """How much passes, and the noise of one client's part."""

    most: Number
    noise: Number  # multiplier, of the sum over a cohort

    @property
    def whole(self) -> Number:
        """The standard deviation in a sum over a cohort."""
        return jnp.where(self.noise > 0, self.most * self.noise, 0.0)

    def part(self, cohort: Number) -> Number:
        """The standard deviation that each of so many clients adds."""
        return self.whole / jnp.sqrt(1.0 * cohort)


def clipped(most: Number, arrays: Sequence[Any], origins: Sequence[Any]) -> list[Any]:
    """The point, if it is within `most` of the origin, else the nearest that is."""
    away = [array - origin for array, origin in zip(arrays, origins, strict=True)]
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(one)) for one in away))
    within, factor = norm <= most, most / jnp.where(norm > 0, norm, 1.0)
    return [
        jnp.where(within, array, origin + factor * one)
        for array, origin, one in zip(arrays, origins, away, strict=True)
    ]


def normals(key: Array, arrays: Sequence[Any]) -> list[Array]:
    """Independent normal numbers in the shapes and types of some arrays."""
    keys = jax.random.split(key, len(arrays))
    return [
        jax.random.normal(one, jnp.shape(array), jnp.result_type(array))
        for one, array in zip(keys, arrays, strict=True)
    ]


def noisy(key: Array, arrays: Sequence[Any], deviation: Number) -> list[Any]:
    """The arrays with independent normal numbers of this standard deviation added."""
    return [
        (one + deviation * random).astype(jnp.result_type(one))
        for one, random in zip(arrays, normals(key, arrays), strict=True)
    ]


def released(
    begin: Inner, clip: Clip, chosen: Chosen, client: Client, state: Any, sent: Any, local: Local
) -> Local:
    """What the client goes on with: clipped, and noisy with numbers from its turn."""
    assert client.turn is not None
    origins = chosen.of(begin(client, state, sent))
    near = clipped(clip.most, chosen.of(local), origins)
    key = jax.random.fold_in(client.turn.own_key, NOISE)
    return chosen.put(local, noisy(key, near, clip.part(client.turn.cohort)))


def blur(clip: Clip, key: Array, mean: Message, unit: Number) -> Message:
    """The weighted mean, as noisy as if each client had added its part."""
    leaves, form = jax.tree.flatten(mean)
    return jax.tree.unflatten(form, noisy(key, leaves, clip.whole * unit))


def upload(
    inner: Inner, release: Inner, client: Client, state: Any, sent: Any, local: Local
) -> Any:
    return inner(client, state, sent, release(client, state, sent, local))


def commit(
    inner: Inner,
    release: Inner,
    client: Client,
    state: Any,
    sent: Any,
    local: Local,
    after: Any,
    steps: Number,
) -> Any:
    """With what was sent: the same numbers are drawn again."""
    return inner(client, state, sent, release(client, state, sent, local), after, steps)


def releasing(method: Method, names: Sequence[str]) -> Method:
    """The method as private clients run it, if it is to be private."""
    if isinstance(method.gradient, Private):
        check_examples(method, names)
    if method.release is None:
        return method
    asked = method.release
    chosen, whole = what_travels(method, names, asked.noise_at), Clip(asked.clip, asked.noise)
    at_server = asked.noise_at == "server"
    own = whole._replace(noise=0.0) if at_server else whole
    release = Partial(released, method.begin, own, chosen)
    return replace(
        method,
        upload=Partial(upload, method.upload, release),
        commit=Partial(commit, method.commit, release),
        blur=Partial(blur, whole) if at_server else None,
        draws=True,
    )


def ready(method: Method, names: Sequence[str]) -> Method:
    """The method as clients run it: for a model whose arrays have these names, with its memory,
    and private where it is to be."""
    return releasing(remembering(fitted(method, names)), names)
