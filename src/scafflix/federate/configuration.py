"""The configuration of a real run: that of a simulation, plus a few keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tomli_w

from scafflix.core.errors import ScafflixError
from scafflix.federate.privacy import check_terms_of
from scafflix.federate.settings import Settings
from scafflix.methods.transport import FULL
from scafflix.models import is_network
from scafflix.personalization.alphas import rule_in
from scafflix.personalization.lengths import LEAST
from scafflix.personalization.recipe import Recipe
from scafflix.runs import refusals
from scafflix.runs.assembly import network_defaults, optima_of, recipe_of, rounds_of
from scafflix.runs.config import RunConfig, build, key, plain
from scafflix.simulate.cohorts import BLOW_UP
from scafflix.simulate.planning import check_choice


@dataclass(frozen=True, kw_only=True)
class DeployConfig(RunConfig):
    """One run in a federation."""

    alpha: Any = key(
        "Personalization: a number in [0, 1], a file with one number per client, or a rule by "
        "which every client chooses its own at the end: auto, loo, validation, james-stein, "
        "common.",
        1.0,
    )
    minimum: int | None = key("Replies needed, or the round is repeated (default: half).", None)
    attempts: int = key("Attempts per round before the server gives up.", 5)
    patience: float = key("Seconds to wait for the replies to a round.", 600.0)
    mirror: bool = key("Keep a copy of every client's control variate on the server.", False)
    far: float = key(
        "Refuse uploads this many times further from the model than usual (0: never).",
        100.0,
    )
    blow_up: float = key(
        "Stop when the clients' objective reaches this multiple of its first value (0: never).",
        BLOW_UP,
    )
    checkpoints: int = key("Number of recent rounds to keep for --from, besides the best one.", 5)
    largest_weight: float = key("Largest weight of a client, as a multiple of the median.", 1000.0)
    largest_steps: float = key(
        "Largest expected number of local steps per round that clients may ask for.", 1000.0
    )
    classes: tuple[Any, ...] = key("All labels that occur at any node.", ())
    secure_aggregation: bool = key(
        "The server learns only sums of the messages of a round's clients.", False
    )
    threshold: int | None = key(
        "Clients that must stay to the end of a round's secure aggregation (default: more than "
        "half).",
        None,
    )


def text_of(config: DeployConfig) -> str:
    """The configuration as TOML, to send to the nodes."""
    return tomli_w.dumps({name: value for name, value in plain(config).items() if value != []})


def config_from(text: str) -> DeployConfig:
    """Read the TOML that `text_of` writes."""
    try:
        values: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScafflixError(f"The settings of the run are not valid TOML: {error}.") from None
    config: DeployConfig = build(DeployConfig, values)
    _check_possible(config)
    return replace(config, rounds=rounds_of(config))


def checked(config: DeployConfig, own: bool = False) -> DeployConfig:
    """Refuse what a federation cannot do and what is wrong with any data; fill in the defaults of
    networks. A user's own model counts as a network, whatever its name."""
    _check_possible(config)
    if own or is_network(config.model):
        config = replace(config, optima=optima_of(config))
    refusals.check_read(config, network=own or is_network(config.model))
    if own:
        resolved: DeployConfig = network_defaults(config)
        method, rule = refusals.check_network_keys(resolved), rule_in(config.alpha)
        if rule is not None:
            refusals.check_rule(rule, f"own model {config.model}")
            check_choice(rule, method)
        return resolved
    refusals.check_keys(config)
    if is_network(config.model):
        return network_defaults(config)
    return replace(config, rounds=rounds_of(config))


def _check_possible(config: DeployConfig) -> None:
    if config.h0 != "zero":
        raise ScafflixError(f"h0 is {config.h0!r}; in a federation it must be zero.")
    if config.noise:
        raise ScafflixError("noise is for simulations; leave it out.")
    if config.epsilon is not None:
        raise ScafflixError(
            "epsilon needs the optimum, which is unknown in a federation; leave it out."
        )
    check_terms_of(config)
    if config.secure_aggregation and config.transport != FULL:
        raise ScafflixError(
            f"transport is {config.transport}, but secure aggregation sends whole numbers of its "
            "own; leave out one."
        )
    if config.mirror and config.transport != FULL:
        raise ScafflixError(
            f"transport is {config.transport}, with which clients upload how far they went, but "
            "mirror needs where they arrived; leave out one."
        )
    if config.individual or config.optima == "warm":
        raise ScafflixError("individual and optima warm are for simulations; leave them out.")
    if config.optima == "after" and rule_in(config.alpha) is None:
        raise ScafflixError(
            "optima is 'after', but alpha is no rule; in a federation a number is trained for, so "
            "leave out optima, or give alpha a rule, such as auto."
        )


def recipe_on_node(config: DeployConfig) -> Recipe:
    """How a node looks for x_i*. After the rounds it does not ask others for how long: unless told,
    it tunes by the fewest steps that a simulation tries."""
    recipe = recipe_of(config)
    return recipe if recipe.steps is not None else replace(recipe, steps=LEAST)


def check_sizes(config: DeployConfig, clients: int) -> None:
    """Before anything starts, refuse sizes that do not fit this number of clients."""
    if not clients:
        return  # every alpha is 0: there is no round
    Settings(
        rounds=rounds_of(config),
        cohort=config.cohort,
        minimum=config.minimum,
        attempts=config.attempts,
        every=config.every or 1,
        mirror=config.mirror,
        secure_aggregation=config.secure_aggregation,
        threshold=config.threshold,
    ).sizes(clients)


def names_from(text: str) -> list[str]:
    """A list of client ids from JSON; empty if none are given."""
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ScafflixError("roster must be a JSON list of client ids.")
    return found


def keys_from(text: str) -> dict[str, int]:
    """The node that holds each client's key, from JSON; empty if nodes have no keys."""
    found = json.loads(text) if text else {}
    if not isinstance(found, dict) or not all(isinstance(node, int) for node in found.values()):
        raise ScafflixError("keys must be a JSON object that maps client ids to node numbers.")
    return found
