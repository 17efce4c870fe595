"""The configuration of a real run: that of a simulation, and a few keys more."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from scafflix.core.errors import ScafflixError
from scafflix.federate.settings import Settings
from scafflix.models import is_network
from scafflix.runs import refusals
from scafflix.runs.assembly import network_defaults
from scafflix.runs.config import RunConfig, build, key, plain
from scafflix.simulate.cohorts import BLOW_UP


@dataclass(frozen=True, kw_only=True)
class DeployConfig(RunConfig):
    """One run in a federation."""

    minimum: int | None = key("Replies without which a round is repeated; else half.", None)
    attempts: int = key("Attempts at a round before the server gives up.", 5)
    patience: float = key("Seconds to wait for the replies to a round.", 600.0)
    mirror: bool = key("Keep every client's control variate on the server too.", False)
    far: float = key(
        "Refuse an upload that lies so many times further from the model than was usual; 0: none.",
        100.0,
    )
    blow_up: float = key(
        "Stop when the clients' objective is so many times that of the start; 0: never.", BLOW_UP
    )
    checkpoints: int = key("Rounds to which --from can go back, beside the best one.", 5)
    largest_weight: float = key("Largest weight of a client, times the median of all.", 1000.0)
    largest_steps: float = key(
        "Most local steps of a round, in expectation, that clients' constants may ask for.", 1000.0
    )
    classes: tuple[Any, ...] = key("All labels that any node may have.", ())


def text_of(config: DeployConfig) -> str:
    """As TOML, to be sent to the nodes."""
    return tomli_w.dumps({name: value for name, value in plain(config).items() if value != []})


def config_from(text: str) -> DeployConfig:
    """From TOML, as `text_of` writes it."""
    try:
        values: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScafflixError(f"The settings of the run are not valid TOML: {error}.") from None
    config: DeployConfig = build(DeployConfig, values)
    _check_possible(config)
    return config


def checked(config: DeployConfig, own: bool = False) -> DeployConfig:
    """Refuse what a federation cannot do and what no data can mend; write out the defaults of
    networks. A model of one's own is a network, by whatever name."""
    _check_possible(config)
    refusals.check_read(config, network=own or is_network(config.model))
    if own:
        resolved: DeployConfig = network_defaults(config)
        refusals.check_network_keys(resolved)
        return resolved
    refusals.check_keys(config)
    return network_defaults(config) if is_network(config.model) else config


def _check_possible(config: DeployConfig) -> None:
    if config.h0 != "zero":
        raise ScafflixError(f"h0 is {config.h0!r}; in a federation it must be zero.")
    if config.noise:
        raise ScafflixError("noise is for simulations; leave it out.")
    if config.epsilon is not None:
        raise ScafflixError("epsilon needs the optimum, which nobody knows here; leave it out.")
    if config.individual or config.optima == "warm":
        raise ScafflixError("individual and optima warm are for simulations; leave them out.")


def check_sizes(config: DeployConfig, clients: int) -> None:
    """Refuse, before anything starts, rounds that so many clients cannot make."""
    if not clients:
        return  # every alpha is 0: there is no round
    Settings(
        rounds=config.rounds,
        cohort=config.cohort,
        minimum=config.minimum,
        attempts=config.attempts,
        every=config.every or 1,
    ).sizes(clients)


def names_from(text: str) -> list[str]:
    """A list of client ids from JSON; empty for no wish."""
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ScafflixError("roster must be a JSON list of client ids.")
    return found


def keys_from(text: str) -> dict[str, int]:
    """The node that holds each client's key, from JSON; empty where nodes have no keys."""
    found = json.loads(text) if text else {}
    if not isinstance(found, dict) or not all(isinstance(node, int) for node in found.values()):
        raise ScafflixError("keys must be a JSON object of client ids and numbers of nodes.")
    return found
