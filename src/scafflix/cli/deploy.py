"""`scafflix deploy`: the same run in a Flower federation.

Flower is an optional extra; only the commands that need it import it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scafflix.cli.display import conclusion, progress, say, show_facts, tell, wrote
from scafflix.core import specs
from scafflix.core.errors import ScafflixError
from scafflix.runs import config as configuration

if TYPE_CHECKING:
    from scafflix.federate.page import Page
    from scafflix.record import Record

app = typer.Typer(help="The same run in a real federation, on Flower.", no_args_is_help=True)

Config = Annotated[
    Path, typer.Option("--config", help="TOML file, as for scafflix run.", metavar="FILE")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a configuration key.", metavar="KEY=VALUE"),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", help="Folder for the run; an unfinished run in it is continued.", metavar="DIR"
    ),
]
LearnerOption = Annotated[
    str | None,
    typer.Option("--learner", help="Your own backend.", metavar="FILE.py:FUNCTION|MODULE:FUNCTION"),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Your own PyTorch module.", metavar="FILE.py:NAME"),
]
NewEpoch = Annotated[
    bool,
    typer.Option(
        "--new-epoch",
        help="Reset every client's control variate (use this when a client has lost its state).",
    ),
]
From = Annotated[
    int | None,
    typer.Option(
        "--from",
        help="Go back to this round and reset every client's control variate.",
        metavar="ROUND",
        min=0,
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        help="Continue without this client for good, and reset every control variate.",
        metavar="CLIENT",
    ),
]
PageOption = Annotated[
    str | None,
    typer.Option(
        "--page", help="Show the run live at this address, with /metrics.", metavar="HOST:PORT"
    ),
]


@app.command()
def local(
    config: Config,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", help="Number of nodes (default: all clients)."),
    ] = None,
    model: ModelOption = None,
    learner: LearnerOption = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Use TLS and node keys, created for this run.")
    ] = False,
    page: PageOption = None,
    out: Out = Path("runs/deploy"),
    new_epoch: NewEpoch = False,
    back_to: From = None,
    without: Without = None,
    assignments: Set = None,
) -> None:
    """Run a SuperLink and nodes on this machine, as real processes, and collect the record."""
    _need_flower()
    from scafflix.federate.local import run_local
    from scafflix.federate.settings import Restart
    from scafflix.models import is_own

    asked = _read(config, assignments, model)
    if is_own(asked.model):  # the nodes run in folders of their own
        asked = replace(asked, model=_findable(asked.model, "model"))
    with _interruptible(out), progress(asked.method) as (report,):
        record = run_local(
            asked,
            out,
            nodes,
            learner=learner and _findable(learner),
            secure=secure,
            page=page,
            announce=_announce,
            restart=Restart(new_epoch, back_to, tuple(without or ())),
            progress=report,
            notice=_refused,
        )
    _print(record, out)


@app.command()
def server(
    config: Config,
    nodes: Annotated[int, typer.Option("--nodes", help="Number of nodes to wait for.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8000,
    certificates: Annotated[
        Path | None,
        typer.Option(help="Folder with ca.crt, server.crt and server.key, for TLS.", metavar="DIR"),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not use TLS.")] = False,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Public key of a node to admit; other nodes are then refused."),
    ] = None,
    page: PageOption = None,
    out: Out = Path("runs/deploy"),
    new_epoch: NewEpoch = False,
    back_to: From = None,
    without: Without = None,
    assignments: Set = None,
) -> None:
    """Run the server of a federation: wait for the nodes, train, and write the record."""
    _need_flower()
    if (certificates is None) != insecure:
        raise ScafflixError("Give either --certificates DIR (TLS) or --insecure.")
    if nodes < 1:
        raise ScafflixError(f"nodes is {nodes}; it must be at least 1.")
    from scafflix.federate.configuration import check_sizes, checked
    from scafflix.federate.connection import Link
    from scafflix.federate.processes import alone
    from scafflix.federate.settings import Restart
    from scafflix.federate.terms import check_terms
    from scafflix.models import MODELS, is_network, is_own

    read = _read(config, assignments)
    # nodes may have their own model, under a name that only they know
    unknown = read.model not in MODELS and not is_network(read.model)
    asked = checked(read, own=unknown or is_own(read.model))
    check_sizes(asked, nodes)
    check_terms(out / "server", asked)
    restart = Restart(new_epoch, back_to, tuple(without or ()))
    with _interruptible(out), alone(out):
        link = Link(out, port, host, certificates, key or (), page)
        with link.page or nullcontext(), link.processes:
            link.start()
            link.wait()
            tell("listening", f"on {host}:{port}, waiting for {nodes} nodes")
            if link.page is not None:
                _announce(link.page)
            with progress(asked.method) as (report,):
                record = link.run(asked, nodes, restart=restart, progress=report, notice=_refused)
    _print(record, out)


@app.command()
def node(
    superlink: Annotated[str, typer.Option(help="Address of the server, HOST:PORT.")],
    client: Annotated[str, typer.Option(help="Id of this client; it must never change.")],
    data: Annotated[Path, typer.Option(help="File with its examples: CSV, svmlight or npz.")],
    folder: Annotated[
        Path, typer.Option(help="Folder for its state; do not delete it.", metavar="DIR")
    ],
    part: Annotated[
        str | None,
        typer.Option(
            help="Column of its table that says train, test or validation for each row.",
            metavar="COLUMN",
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            help="Its own alpha, a number or a rule such as auto (default: from the configuration)."
        ),
    ] = None,
    model: ModelOption = None,
    learner: LearnerOption = None,
    method: Annotated[
        str | None, typer.Option(help="Your own method (FILE.py:FUNCTION), if the run uses one.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="The server's ca.crt, for TLS.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not use TLS.")] = False,
    key: Annotated[Path | None, typer.Option(help="This node's private key.")] = None,
    min_examples: Annotated[
        int | None,
        typer.Option(
            help="Refuse to train on fewer examples, or with smaller batches (default: 10).", min=1
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", help="Epsilon never to exceed: take part only with privacy."),
    ] = None,
    secure_aggregation: Annotated[
        bool,
        typer.Option(
            "--secure-aggregation",
            help="Take part only where the server sees nothing but sums of messages.",
        ),
    ] = False,
) -> None:
    """Run one client, which waits for work until you stop it. Its data stay on this machine."""
    _need_flower()
    if (ca is None) != insecure:
        raise ScafflixError("Give either --ca FILE (TLS) or --insecure.")
    for file in (data, ca, key):
        if file is not None and not file.exists():
            raise ScafflixError(f"{file}: there is no such file.")
    import tomli_w

    from scafflix.core import durable
    from scafflix.core.arguments import real_number
    from scafflix.federate.connection import node_words
    from scafflix.federate.messages import checked_name
    from scafflix.federate.processes import alone, become, environment
    from scafflix.personalization.alphas import read_alpha, rule_in

    fixed = None if alpha is None else float(read_alpha(alpha, 1)[0])
    folder = durable.new_folder(folder.absolute())
    own: dict[str, Any] = {"client": checked_name(client), "data": str(data.absolute())}
    own |= {"folder": str(folder)} | ({} if part is None else {"part": part})
    own |= {} if alpha is None else {"alpha": alpha if rule_in(alpha) else fixed}
    own |= {} if model is None else {"model": _findable(model, "model")}
    own |= {} if learner is None else {"learner": _findable(learner)}
    own |= {} if method is None else {"method": _findable(method)}
    own |= {} if min_examples is None else {"min-examples": min_examples}
    own |= {"secure-aggregation": True} if secure_aggregation else {}
    own |= {} if budget is None else {"budget": real_number("budget", budget, above=True)}
    own |= {"key": str(key.absolute()), "ca": str(ca.absolute())} if key and ca else {}
    with alone(folder) as held:
        settings = folder / "node.toml"
        settings.write_text(tomli_w.dumps(own))
        words = node_words(superlink, settings, ca and ca.absolute(), key and key.absolute())
        become(words, environment(folder / "flower", folder / "cache"), folder, held)


@app.command()
def keys(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.", metavar="DIR")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name or address of the server; may be repeated."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="Client id of a node that needs a key; may be repeated."),
    ] = None,
) -> None:
    """Make TLS certificates for a server and keys for nodes."""
    _need_flower()
    from scafflix.federate.certificates import make_certificates, make_node_key

    if not host and not client:
        raise ScafflixError("Give --host for certificates, --client for node keys, or both.")
    if host:
        wrote("certificates", make_certificates(out, host))
    for name in client or ():
        wrote(f"key of {name}", make_node_key(out, name))


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """On SIGINT or SIGTERM, let the run stop its processes, and say how to continue it."""

    asked: list[int] = []

    def stop(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) == 1:  # do not interrupt the stopping: `timeout` sends two signals
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        say("stopped", "yellow", f"run the same command again to continue the run in {out}")
        raise SystemExit(128 + asked[0] if asked else 130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(page: Page) -> None:
    """Say where the page is, and where its token is, but never the token."""
    token = f", with the token in {page.token_file}" if page.token is not None else ""
    tell("page", f"{page.url}{token}")


def _refused(sentence: str) -> None:
    """Who refuses, and why, as soon as it is known."""
    say("note", "yellow", sentence)


def _findable(name: str, what: str = "learner") -> str:
    """The name with an absolute path, so that a process in another folder finds the file."""
    module, _, function = name.rpartition(":")
    if not module or not function:
        raise ScafflixError(f"{what} is {name!r}; give FILE.py:FUNCTION or MODULE:FUNCTION.")
    if not module.endswith(".py"):
        return name
    if not Path(module).exists():
        raise ScafflixError(f"{module}: there is no such file.")
    return f"{Path(module).absolute()}:{function}"


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise ScafflixError("Flower is not installed; run: pip install 'scafflix[flower]'.")


def _read(file: Path, assignments: list[str] | None, model: str | None = None) -> Any:
    from scafflix.federate.configuration import DeployConfig

    given = {} if model is None else {"model": model}
    config = configuration.read(DeployConfig, file, given, assignments or [])
    method = specs.read(config.method)
    if ".py:" not in method.name:
        return config
    return replace(config, method=specs.written(_findable(method.name), method.options))


def _print(record: Record, out: Path) -> None:
    from scafflix.report import worth
    from scafflix.report.recommendation import recommendation

    shown = "method rounds n_active seconds final_objective final_objective_clients refused dropped"
    facts = {name: record.summary[name] for name in [*shown.split(), "troubles"]}
    show_facts("Federation", facts | worth.facts(record))
    wrote("record", out / "server" / "record")
    conclusion(*recommendation(record), taken_home=record.summary.get("taken_home"))
