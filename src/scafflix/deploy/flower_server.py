"""The server on Flower: gathers the clients, makes the method for them, runs, writes the record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from scafflix import durable, gradients
from scafflix.building import make_method
from scafflix.config import plain
from scafflix.deploy.configuration import DeployConfig, config_from, keys_from, names_from
from scafflix.deploy.flower_transport import GREETING, POLL, FlowerTransport, gather
from scafflix.deploy.link import FINISHED
from scafflix.deploy.planning import advice
from scafflix.deploy.recording import record
from scafflix.deploy.roster import Roster
from scafflix.deploy.server import ServerCore
from scafflix.deploy.serving import Progress, serve
from scafflix.deploy.settings import Settings
from scafflix.errors import ScafflixError
from scafflix.laboratory import COHORT, resolve
from scafflix.methods import PACED, Method
from scafflix.record import Record


def plan_run(config: DeployConfig, roster: Roster) -> tuple[Method, Settings]:
    """The method for the clients that take part, and the settings, with a simulation's defaults.

    Clients without constants have networks, whatever they call them.
    """
    people = [one for one in roster.introductions if one.alpha > 0]
    if not people:
        raise ScafflixError("Every alpha is 0: nobody takes part, and no round is needed.")
    cohort, every = config.cohort, 1
    if all(one.gamma > 0 for one in people):
        batch = "full" if config.batch == "auto" else config.batch
        plan = advice(people, gradients.gradient(batch))
        method = make_method(plan, config.method, config.stepsize, config.p, config.pace)
        pace = "expected" if config.pace == "auto" else config.pace
    else:
        config = resolve(config)
        plan = advice(people, gradients.gradient(config.batch), config.stepsize, config.p)
        method = make_method(plan, config.method, "auto", config.p, config.pace)
        pace = config.pace
        cohort = min(COHORT, len(people)) if cohort is None else cohort
        every = config.every
    settings = Settings(
        rounds=config.rounds,
        cohort=cohort,
        minimum=config.minimum,
        attempts=config.attempts,
        seed=config.seed,
        mirror=config.mirror,
        every=every,
        pace=pace if config.method in PACED else "",
    )
    return method, settings


def run(
    grid: Grid,
    config: DeployConfig,
    folder: Path,
    *,
    nodes: int = 0,
    order: Sequence[str] = (),
    keys: Mapping[str, int] | None = None,
    new_epoch: bool = False,
    poll: float = POLL,
    progress: Progress | None = None,
) -> Record:
    """A whole run, begun or taken up again in its folder; its record is in `folder/record`."""
    began = time.monotonic()
    with durable.locked(durable.new_folder(folder), patience=60.0):
        transport = FlowerTransport(grid, config.patience, poll, keys)
        kept = Roster.load(folder)
        if kept is None:
            roster = gather(transport, nodes, order)
            start = transport.start_of(roster.introductions[0].client).start
            roster.save(folder, start)
        else:
            roster, start = kept
        method, settings = plan_run(config, roster)
        core = ServerCore(folder, roster, method, start, settings)
        transport.expected = {one.client: one for one in roster.introductions}
        transport.needed, transport.refuse = core.minimum, core.refuse
        if kept is not None:
            transport.wait_for(core.names, len(core.names), min(GREETING, config.patience))
        if new_epoch:
            core.new_epoch()
        evaluations = serve(core, transport, progress)
        asked = {name: value for name, value in plain(config).items() if value != []}
        made = record(core, evaluations, asked, time.monotonic() - began)
        made.save(folder / "record", force=True)
        return made


def server_app() -> ServerApp:
    """A ServerApp from the run's configuration, whose keys the app's pyproject.toml explains."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        asked = context.run_config

        def report(done: int, total: int, state: str) -> None:
            print(f"round {done}/{total} {state}", flush=True)

        run(
            grid,
            config_from(str(asked["settings"])),
            Path(str(asked["folder"])),
            nodes=int(asked["nodes"]),
            order=names_from(str(asked["roster"])),
            keys=keys_from(str(asked["keys"])),
            new_epoch=bool(asked["new-epoch"]),
            progress=report,
        )
        print(FINISHED, flush=True)

    return app
