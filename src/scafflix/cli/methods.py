"""`scafflix methods`: which there are, and what each is."""

from __future__ import annotations

from typing import Annotated

import typer

from scafflix.cli.display import MANNER, OUT, show_facts


def methods(
    name: Annotated[str, typer.Argument(help="One of them, or FILE.py:FUNCTION.")] = "",
) -> None:
    """List the methods: their papers, what is guaranteed, what travels, what a client stores."""
    from scafflix.methods import METHODS, PROXSKIP_VR
    from scafflix.runs.about import about

    if name:
        found = about(name)
        if MANNER.words:
            OUT.print(f"{found.title}\n\n{found.text}\n", soft_wrap=True)
        counts = {"up": found.up, "down": found.down, "stored": found.stored}
        show_facts(name, {"guarantee": found.guarantee, **counts, **found.parameters})
        return
    for one in map(about, METHODS):
        MANNER.said[one.name] = one._asdict()
        if MANNER.words:
            OUT.print(f"{one.name:<20} {one.title}", soft_wrap=True)
            travels = f"up {one.up:.3g}, down {one.down:.3g}, stored {one.stored:.3g} models"
            words = f"guarantee: {one.guarantee}; {travels}; {', '.join(one.parameters)}"
            OUT.print(f"{'':<20} {words}", soft_wrap=True)
    if MANNER.words:
        OUT.print(f"{'(proxskip_vr)':<20} {PROXSKIP_VR}", soft_wrap=True)
