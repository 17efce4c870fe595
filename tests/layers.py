"""Which room of the package imports which; `python tests/layers.py` draws it for the docs."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, PICTURE = ROOT / "src" / "scafflix", ROOT / "docs" / "images" / "imports.svg"
# the way of the data: a room imports only what stands before it
ORDER = (
    "core", "privacy", "data", "models", "problems", "personalization", "gradients", "theory",
    "control", "methods", "algorithm", "prediction", "export", "record", "simulate", "runs",
    "estimators", "federate", "report", "cli",
)  # fmt: skip


def room(module: str) -> str:
    """`scafflix.core.errors` is in the room core; so is every name of it."""
    return module.split(".")[1]


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in found if name.startswith("scafflix.")}


def edges(package: Path = PACKAGE) -> dict[tuple[str, str], set[str]]:
    """The files that make one room import another."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        here = path.relative_to(package)
        if here.name == "__init__.py" and len(here.parts) == 1:
            continue  # the package itself names what users see, from every room
        for module in imported(path):
            pair = (here.parts[0].removesuffix(".py"), room(module))
            if pair[0] != pair[1]:
                found.setdefault(pair, set()).add(str(here))
    return found


def upward(found: dict[tuple[str, str], set[str]]) -> dict[tuple[str, str], set[str]]:
    """The imports that go against the order."""
    return {
        (one, other): files
        for (one, other), files in found.items()
        if ORDER.index(other) > ORDER.index(one)
    }


def draw(found: dict[tuple[str, str], set[str]]) -> None:
    """The rooms in their order, and an arc from each to what it imports; close ones darker."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch

    mpl.rcParams["svg.hashsalt"] = "imports"  # the same file each time
    figure = Figure(figsize=(5, 8))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 6.6), ylim=(len(ORDER) - 0.4, -0.6))
    axes.axis("off")
    for place, name in enumerate(ORDER):
        label = f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py"
        box = {"boxstyle": "round,pad=0.35", "facecolor": "#e8eaf6", "edgecolor": "#3f51b5"}
        axes.text(2.2, place, label, ha="right", va="center", family="monospace", bbox=box)
    for one, other in sorted(found):
        start, end = ORDER.index(one), ORDER.index(other)
        arc = FancyArrowPatch(
            (2.45, start),
            (2.45, end),
            connectionstyle=f"arc3,rad={0.62 + 0.1 / (start - end)}",
            arrowstyle="-|>",
            mutation_scale=9,
            color="#3f51b5",
            alpha=max(0.18, 1 / (start - end)),
            gid=f"{one}-imports-{other}",
        )
        axes.add_patch(arc)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw(edges())
