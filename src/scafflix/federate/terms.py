"""The terms of a run: a folder holds one run, and refuses any other."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.federate.configuration import DeployConfig
from scafflix.runs.config import plain

# Keys that may change during a run, because its results so far do not depend on them; every other
# key defines the run. (rounds must not fall below the number of closed rounds.)
FREE = {
    "rounds",
    "minimum",
    "attempts",
    "patience",
    "checkpoints",
    "far",
    "blow_up",
    "largest_weight",
    "largest_steps",
}


# what a key was in a run that began before there was such a key
_DEFAULTS: dict[str, Any] = json.loads(
    json.dumps(
        {one.name: one.default for one in fields(DeployConfig) if one.default is not MISSING}
    )
)


def check_terms(folder: Path, config: DeployConfig, **more: Any) -> None:
    """Refuse to continue with a configuration other than the one the run began with."""
    path = folder / "terms.json"
    if not path.exists():
        return
    began = _DEFAULTS | json.loads(path.read_text())
    for name, mine in _terms(config, more).items():
        if began.get(name) != mine:
            raise ScafflixError(
                f"{folder} holds a run whose {name} is {_word(began.get(name))}, not "
                f"{_word(mine)}; choose another --out, or use the {name} it began with."
            )


def agree(folder: Path, config: DeployConfig, **more: Any) -> None:
    """Check the terms; write them down if the run is new."""
    check_terms(folder, config, **more)
    path = durable.new_folder(folder) / "terms.json"
    if not path.exists():
        durable.put(path, [json.dumps(_terms(config, more), indent=1).encode()])


def _terms(config: DeployConfig, more: dict[str, Any]) -> dict[str, Any]:
    keys = dict.fromkeys(DeployConfig.__dataclass_fields__) | plain(config)
    fixed = {name: value for name, value in keys.items() if name not in FREE}
    made: dict[str, Any] = json.loads(json.dumps(fixed | more))
    return made


def _word(value: Any) -> str:
    return "not set" if value is None else str(value)
