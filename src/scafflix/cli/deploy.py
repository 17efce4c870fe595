"""`scafflix deploy`: the same run in a Flower federation.

Flower is an optional extra, imported only by a command that needs it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from scafflix import config as configuration
from scafflix.cli.display import progress, say, show_facts, tell, wrote
from scafflix.errors import ScafflixError
from scafflix.record import Record

app = typer.Typer(help="The same run in a real federation, on Flower.", no_args_is_help=True)

Config = Annotated[
    Path, typer.Option("--config", help="A TOML file, as for scafflix run.", metavar="FILE")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a key of the configuration.", metavar="KEY=VALUE"),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", help="Folder of the run; an unfinished run in it goes on.", metavar="DIR"
    ),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        "--learner", help="A backend of your own.", metavar="FILE.py:FUNCTION|MODULE:FUNCTION"
    ),
]
NewEpoch = Annotated[
    bool,
    typer.Option("--new-epoch", help="First set all control variates to zero: a client lost its."),
]


@app.command()
def local(
    config: Config,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Number of nodes: of clients in the data.")
    ] = None,
    learner: LearnerOption = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS and node keys, made for the occasion.")
    ] = False,
    out: Out = Path("runs/deploy"),
    new_epoch: NewEpoch = False,
    assignments: Set = None,
) -> None:
    """A SuperLink and nodes on this machine, as real processes: run, collect the record, stop."""
    _need_flower()
    from scafflix.deploy.local import run_local

    asked = _read(config, assignments)
    with _interruptible(out), progress(asked.method) as (report,):
        record = run_local(
            asked,
            out,
            nodes,
            learner=_findable(learner),
            secure=secure,
            new_epoch=new_epoch,
            progress=report,
        )
    _print(record, out)


@app.command()
def server(
    config: Config,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes to wait for.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8000,
    certificates: Annotated[
        Path | None,
        typer.Option(help="Folder with ca.crt, server.crt and server.key: TLS.", metavar="DIR"),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS.")] = False,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Public key of a node to let in; then no others are."),
    ] = None,
    out: Out = Path("runs/deploy"),
    new_epoch: NewEpoch = False,
    assignments: Set = None,
) -> None:
    """The server of a federation: wait for the nodes, run, write the record."""
    _need_flower()
    if (certificates is None) != insecure:
        raise ScafflixError("Give either --certificates DIR (TLS) or --insecure.")
    from scafflix.deploy.configuration import checked
    from scafflix.deploy.link import Link

    asked = checked(_read(config, assignments))
    link = Link(out, port, host, certificates, key or ())
    with _interruptible(out), link.processes:
        link.start()
        tell("listening", f"on {host}:{port}, waiting for {nodes} nodes")
        with progress(asked.method) as (report,):
            record = link.run(asked, nodes, new_epoch=new_epoch, progress=report)
    _print(record, out)


@app.command()
def node(
    superlink: Annotated[str, typer.Option(help="The server, HOST:PORT.")],
    client: Annotated[str, typer.Option(help="This client's id, the same for ever.")],
    data: Annotated[Path, typer.Option(help="Its examples: CSV, svmlight or npz.")],
    folder: Annotated[Path, typer.Option(help="For its state; keep it.", metavar="DIR")],
    alpha: Annotated[float | None, typer.Option(help="Its own alpha.")] = None,
    learner: LearnerOption = None,
    ca: Annotated[Path | None, typer.Option(help="The server's ca.crt: TLS.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS.")] = False,
    key: Annotated[Path | None, typer.Option(help="This node's private key.")] = None,
    port: Annotated[int | None, typer.Option(help="Port for its own processes.")] = None,
) -> None:
    """One client: waits for work until it is stopped. Its data stay here."""
    _need_flower()
    if (ca is None) != insecure:
        raise ScafflixError("Give either --ca FILE (TLS) or --insecure.")
    if not data.exists():
        raise ScafflixError(f"{data}: there is no such file.")
    import tomli_w

    from scafflix import durable
    from scafflix.deploy.link import node_words
    from scafflix.deploy.messages import checked_name
    from scafflix.deploy.processes import environment, free_port

    folder = durable.new_folder(folder.absolute())
    own: dict[str, Any] = {"client": checked_name(client), "data": str(data.absolute())}
    own |= {"folder": str(folder)}
    own |= {} if alpha is None else {"alpha": alpha}
    own |= {} if learner is None else {"learner": _findable(learner)}
    settings = folder / "node.toml"
    settings.write_text(tomli_w.dumps(own))
    words = node_words(superlink, settings, port or free_port(), ca, key)
    variables = environment(folder / "flower", folder / "cache")
    program = str(Path(sys.executable).parent / words[0])
    os.execve(program, [program, *words[1:]], variables)


@app.command()
def keys(
    out: Annotated[Path, typer.Option("--out", help="Folder to write.", metavar="DIR")],
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address of the server.")
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option("--client", help="A node to make a key for.")
    ] = None,
) -> None:
    """TLS certificates for a server, and keys for nodes."""
    _need_flower()
    from scafflix.deploy.certificates import make_certificates, make_node_key

    if not host and not client:
        raise ScafflixError("Give --host for certificates, --client for node keys, or both.")
    if host:
        wrote("certificates", make_certificates(out, host))
    for name in client or ():
        wrote(f"key of {name}", make_node_key(out, name))


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """A run that is stopped is not lost, and what it started is stopped too."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        say("stopped", "yellow", f"give the same command again to go on with the run in {out}")
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _findable(learner: str | None) -> str | None:
    """A file's name as a process elsewhere finds it."""
    if learner is None:
        return None
    module, _, function = learner.rpartition(":")
    if not module or not function:
        raise ScafflixError(f"learner is {learner!r}; give FILE.py:FUNCTION or MODULE:FUNCTION.")
    if not module.endswith(".py"):
        return learner
    if not Path(module).exists():
        raise ScafflixError(f"{module}: there is no such file.")
    return f"{Path(module).absolute()}:{function}"


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise ScafflixError("Flower is not installed; give pip install 'scafflix[flower]'.")


def _read(file: Path, assignments: list[str] | None) -> Any:
    from scafflix.deploy.configuration import DeployConfig

    return configuration.read(DeployConfig, file, {}, assignments or [])


def _print(record: Record, out: Path) -> None:
    shown = "method rounds n_active seconds final_objective refused dropped troubles"
    show_facts("Federation", {name: record.summary[name] for name in shown.split()})
    wrote("record", out / "server" / "record")
