"""The configuration of a real run: that of a simulation, and a few keys more."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import Any

import tomli_w

from scafflix.cohorts.laboratory import resolve
from scafflix.config import RunConfig, build, plain
from scafflix.errors import ScafflixError
from scafflix.models import NETWORKS


def _key(help: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class DeployConfig(RunConfig):
    """One run in a federation."""

    minimum: int | None = _key("Replies without which a round is repeated; else half.", None)
    attempts: int = _key("Attempts at a round before the server gives up.", 5)
    patience: float = _key("Seconds to wait for the replies to a round.", 600.0)
    mirror: bool = _key("Keep every client's control variate on the server too.", False)
    classes: tuple[Any, ...] = _key("All labels that any node may have.", ())


def text_of(config: DeployConfig) -> str:
    """As TOML, to be sent to the nodes."""
    return tomli_w.dumps({name: value for name, value in plain(config).items() if value != []})


def config_from(text: str) -> DeployConfig:
    """From TOML, with the defaults of networks written out."""
    try:
        values: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScafflixError(f"The settings of the run are not valid TOML: {error}.") from None
    config: DeployConfig = build(DeployConfig, values)
    return checked(config)


def checked(config: DeployConfig) -> DeployConfig:
    """Refuse what a federation cannot do."""
    if config.h0 != "zero":
        raise ScafflixError(f"h0 is {config.h0!r}; in a federation it must be zero.")
    if config.noise:
        raise ScafflixError("noise is for simulations; leave it out.")
    if config.epsilon is not None:
        raise ScafflixError("epsilon needs the optimum, which nobody knows here; leave it out.")
    if config.individual or config.optima == "warm":
        raise ScafflixError("individual and optima warm are for simulations; leave them out.")
    resolved: DeployConfig = resolve(config) if config.model in NETWORKS else config
    return replace(resolved, min_examples=None)


def names_from(text: str) -> list[str]:
    """A list of client ids from JSON; empty for no wish."""
    found = json.loads(text) if text else []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ScafflixError("roster must be a JSON list of client ids.")
    return found
