"""The configuration of a real run: that of a simulation, and a few keys more."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

from scafflix.config import RunConfig, build, key, plain
from scafflix.errors import ScafflixError
from scafflix.laboratory import resolve
from scafflix.models import is_network


@dataclass(frozen=True, kw_only=True)
class DeployConfig(RunConfig):
    """One run in a federation."""

    minimum: int | None = key("Replies without which a round is repeated; else half.", None)
    attempts: int = key("Attempts at a round before the server gives up.", 5)
    patience: float = key("Seconds to wait for the replies to a round.", 600.0)
    mirror: bool = key("Keep every client's control variate on the server too.", False)
    classes: tuple[Any, ...] = key("All labels that any node may have.", ())


def text_of(config: DeployConfig) -> str:
    """As TOML, to be sent to the nodes."""
    return tomli_w.dumps({name: value for name, value in plain(config).items() if value != []})


def config_from(text: str) -> DeployConfig:
    """From TOML, checked."""
    try:
        values: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScafflixError(f"The settings of the run are not valid TOML: {error}.") from None
    config: DeployConfig = build(DeployConfig, values)
    return checked(config)


def checked(config: DeployConfig) -> DeployConfig:
    """Refuse what a federation cannot do; write out the defaults of networks."""
    if config.h0 != "zero":
        raise ScafflixError(f"h0 is {config.h0!r}; in a federation it must be zero.")
    if config.noise:
        raise ScafflixError("noise is for simulations; leave it out.")
    if config.epsilon is not None:
        raise ScafflixError("epsilon needs the optimum, which nobody knows here; leave it out.")
    if config.individual or config.optima == "warm":
        raise ScafflixError("individual and optima warm are for simulations; leave them out.")
    resolved: DeployConfig = resolve(config) if is_network(config.model) else config
    return resolved


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
