"""The server on Flower: gather the clients, plan the method, run, and write the record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.federate.agreement import Kept
from scafflix.federate.bounds import Bounds, check_alike, check_steps, check_weights
from scafflix.federate.configuration import DeployConfig, config_from, keys_from, names_from
from scafflix.federate.flower_transport import GREETING, POLL, FlowerTransport
from scafflix.federate.gathering import gather
from scafflix.federate.live import Live
from scafflix.federate.planning import advice
from scafflix.federate.privacy import terms_of
from scafflix.federate.records import record, without_rounds
from scafflix.federate.roster import Roster, check_order
from scafflix.federate.secure.server import SecureServer
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.federate.settings import AS_IT_STOPPED, Restart, Settings
from scafflix.federate.status import Notice, Progress, Status
from scafflix.federate.terms import agree
from scafflix.methods import Method, find, parameters
from scafflix.models import is_network
from scafflix.record import Record
from scafflix.runs.assembly import estimate_of, make_method, network_defaults, rounds_of
from scafflix.runs.config import plain
from scafflix.runs.runner import COHORT
from scafflix.simulate.planning import check_choice


def plan_run(config: DeployConfig, roster: Roster) -> tuple[Method, Settings]:
    """The method for the clients that take part, and the settings, with a simulation's defaults.

    Clients without constants are taken to train networks, whatever the model's name.
    """
    people = [one for one in roster.introductions if one.alpha > 0]
    cohort, every = config.cohort, config.every or 1
    if cohort is not None and roster.left:
        cohort = min(cohort, len(people))
    bounds = Bounds(config.largest_weight, config.largest_steps)
    check_alike(people)
    planned = None
    if people[0].gamma > 0:
        plan = advice(people, estimate_of(config))
        if config.p == "auto":
            check_steps(people, plan.p, bounds)
    elif config.privacy != "none" and not is_network(config.model):  # which tells no constants
        config = replace(config, pace="expected" if config.pace == "auto" else config.pace)
        p = config.p if "p" in parameters(find(config.method)) else 1.0
        plan = replace(advice(people, estimate_of(config), config.stepsize, p), cap=0.0)
        planned = False
    else:
        config = network_defaults(config)
        plan = advice(people, estimate_of(config), config.stepsize, config.p)
        cohort = min(COHORT, len(people)) if cohort is None else cohort
        every = config.every or 1
    method = make_method(plan, config, planned)
    for rule in {one.rule for one in people if one.rule}:
        check_choice(rule, method)
    settings = Settings(
        rounds=rounds_of(config),
        cohort=cohort,
        minimum=config.minimum,
        attempts=config.attempts,
        seed=config.seed,
        mirror=config.mirror,
        every=every,
        far=config.far,
        blow_up=config.blow_up,
        checkpoints=config.checkpoints,
        secure_aggregation=config.secure_aggregation,
        threshold=config.threshold,
        privacy=terms_of(config),
    )
    check_weights(people, method, bounds)
    return method, settings


def run(
    grid: Grid,
    config: DeployConfig,
    folder: Path,
    *,
    nodes: int = 0,
    order: Sequence[str] = (),
    keys: Mapping[str, int] | None = None,
    restart: Restart = AS_IT_STOPPED,
    poll: float = POLL,
    progress: Progress | None = None,
    notice: Notice = lambda sentence: None,
    job: str = "",
) -> Record:
    """Do a whole run, new or continued in its folder; the record is in `folder/record`."""
    began = time.monotonic()
    with durable.locked(durable.new_folder(folder), patience=60.0):
        transport = FlowerTransport(grid, config.patience, poll, keys)
        transport.tell = notice
        agree(folder, config)
        kept, columns = Roster.load(folder), Kept(folder)
        transport.agreed = columns.text
        if kept is None:
            agree_alike = partial(columns.agree, config=config)
            roster = gather(transport, nodes, order, agree_alike, config.minimum)
            start = transport.start_of(roster.introductions[0].client).start
        else:
            roster, start = kept
        roster = roster.without(restart.without)
        check_order(roster, order)
        asked = {name: value for name, value in plain(config).items() if value != []}
        if not any(one.alpha > 0 for one in roster.introductions):
            made = columns.told_in(without_rounds(roster, start, asked, time.monotonic() - began))
            made.save(folder / "record", force=True)
            return made
        method, settings = plan_run(config, roster)
        roster.save(folder, start)
        kind = SecureServer if settings.secure_aggregation else ServerCore
        core = kind(folder, roster, method, start, settings, back_to=restart.back_to)
        transport.expected = {one.client: one for one in roster.introductions}
        transport.needed, transport.refuse = core.minimum, core.refuse
        if kept is not None:
            transport.wait_for(core.names, len(core.names), min(GREETING, config.patience))
        if restart.new_epoch:
            core.new_epoch()
        with Live(transport, core, job) as live:
            evaluations = serve(core, live, live.noting(progress))
        made = columns.told_in(record(core, evaluations, asked, time.monotonic() - began))
        made.save(folder / "record", force=True)
        return made


def server_app() -> ServerApp:
    """A ServerApp that reads the run's configuration; the app's pyproject.toml lists the keys."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        asked = context.run_config
        folder = Path(str(asked["folder"]))
        status = Status(str(asked.get("job", "")))

        def report(done: int, total: int, state: str) -> None:
            nonlocal status
            status = status._replace(done=done, total=total, state=state)
            status.write(folder)
            print(f"round {done}/{total} {state}", flush=True)  # in the log

        def note(sentence: str) -> None:
            nonlocal status
            before, status = status, status.noting(sentence)
            if status != before:
                status.write(durable.new_folder(folder))

        try:
            run(
                grid,
                config_from(str(asked["settings"])),
                folder,
                nodes=int(asked["nodes"]),
                order=names_from(str(asked["roster"])),
                keys=keys_from(str(asked["keys"])),
                restart=Restart(
                    new_epoch=bool(asked["new-epoch"]),
                    back_to=int(asked["from"]) if asked["from"] != "" else None,
                    without=tuple(names_from(str(asked["without"]))),
                ),
                progress=report,
                notice=note,
                job=status.job,
            )
        except ScafflixError as error:
            status._replace(error=str(error)).write(durable.new_folder(folder))
            raise
        status._replace(finished=True).write(folder)

    return app
