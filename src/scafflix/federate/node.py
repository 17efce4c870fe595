"""Make a node's client from the configuration and the node's own settings.

A node must set `client` (its id), `data` (its file) and `folder` (for its state). It may also set:

alpha         its own alpha, or a rule by which it chooses it at the end
learner       MODULE:FUNCTION or FILE.py:FUNCTION of your own backend; the function takes the data's
              path and the configuration and returns a `Learner`
model         FILE.py:NAME of your own PyTorch module, as for a simulation
method        FILE.py:FUNCTION of your own method; a node never loads a file that a server names
part          the column of a table that says of each row whether it is train, test or validation
secure-aggregation  true: take part only where the server sees nothing but sums of messages
budget        the largest epsilon that it lets out, over all runs; it takes part only with privacy
key, ca       its private key, beside which is its certificate, and the authority's certificate;
              with secure aggregation, nodes recognize each other by these
min-examples  with fewer training examples, or smaller batches, the node does not take part, because
              messages about one or two examples reveal what they are
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scafflix import gradients
from scafflix.core.errors import ScafflixError
from scafflix.core.plugins import find_function
from scafflix.data.federation import Federation
from scafflix.data.recognition import is_table
from scafflix.federate.agreement import Agreement, own_table
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, recipe_on_node
from scafflix.federate.convex import ConvexLearner
from scafflix.federate.examples import load_examples, numbered
from scafflix.federate.learner import Learner, privacy_of, reduction_of
from scafflix.federate.network import NetworkLearner, network_of
from scafflix.federate.privacy import Guard, own_terms, terms_of
from scafflix.federate.secure.identity import Identity
from scafflix.federate.table_client import TableClient
from scafflix.gradients import Minibatch
from scafflix.gradients.private import IN_JAX_ALONE
from scafflix.models import MODELS, NETWORKS, is_network, is_own
from scafflix.personalization.alphas import read_alpha, rule_in
from scafflix.personalization.rules.words import WORDS
from scafflix.problems.problem import LINEAR_L2
from scafflix.runs.assembly import estimate_of
from scafflix.simulate.accounting import check_mixing

MIN_EXAMPLES = 10


def client_of(config: DeployConfig, own: Mapping[str, Any]) -> ClientCore | TableClient:
    """The client that a node's settings describe."""
    for name in ("client", "data", "folder"):
        if not own.get(name):
            raise ScafflixError(
                f"{name} is missing from the node's settings; add it to --node-config."
            )
    alpha = own.get("alpha", config.alpha)
    rule = rule_in(alpha)
    if isinstance(alpha, str) and rule is None:
        raise ScafflixError(
            f"alpha is {alpha!r}; a node needs one number or a rule ({', '.join(WORDS)}), so set "
            "alpha to one in the configuration or in the node's settings."
        )
    (trained,) = read_alpha(alpha, 1)
    if config.optima == "after" and (rule is None or trained < 1):  # it trains for a mixture
        config = replace(config, optima="common")
    users = find_function(str(own["method"]), "method") if own.get("method") else None
    identity = identity_of(own)
    folder, name, path = (Path(str(own["folder"])), str(own["client"]), Path(str(own["data"])))

    def core(learner: Learner) -> ClientCore:
        if config.reduced and reduction_of(learner) is None:
            raise ScafflixError(
                f"reduced is set, but the learner {own['learner']} has no `estimate` of reduced "
                "variance and no `full_gradient`; leave out reduced, or add them."
            )
        if config.privacy == "example":
            check_mixing("example", trained)
            if privacy_of(learner) is None:
                raise ScafflixError(IN_JAX_ALONE)
        _refuse_few(learner.examples, config.batch, own)
        secure = config.secure_aggregation or bool(own.get("secure-aggregation"))
        agreed = own_terms(terms_of(config), own.get("budget"))
        guard = None if agreed is None else Guard(agreed)
        more: dict[str, Any] = {"users_method": users, "rule": rule, "secure": secure}
        more |= {"identity": identity, "guard": guard, "transport": config.transport}
        more |= {"after": config.optima == "after"}
        return ClientCore(name, float(trained), learner, folder, **more)

    if own.get("learner") and own.get("model"):
        raise ScafflixError("A node has a learner or a model of its own, not both; leave out one.")
    if own.get("learner"):
        return core(find_function(str(own["learner"]), "learner")(path, config))
    made_on: Callable[[Federation, DeployConfig, tuple[Any, ...]], Learner] = learner_on
    if own.get("model"):
        from scafflix.federate.pytorch import learner_in

        made_on = learner_in(str(own["model"]))
    else:
        _check_known(config.model)
    if is_table(path) and config.privacy != "none":
        raise ScafflixError(
            f"{path.name} is a table, and summaries of its columns would be told without noise; "
            "with privacy give the node numbers that are prepared already (npz or svmlight)."
        )
    if is_table(path):

        def prepared(examples: Federation, agreed: Agreement) -> ClientCore:
            return core(made_on(examples, config, agreed.classes))

        table = own_table(path, config, own.get("part"))
        return TableClient(name, table, folder, config, prepared, own.get("model"))
    if own.get("part"):
        raise ScafflixError(
            f"part is {own['part']!r}, but {path} is not a table; an npz file names the part of "
            "each row in an array part."
        )
    network = bool(own.get("model")) or is_network(config.model)
    examples = load_examples(config, path, network=network)
    return core(made_on(examples, config, config.classes))


def identity_of(own: Mapping[str, Any]) -> Identity | None:
    """By which other nodes recognize this one; None for a node without a certified key."""
    if not own.get("key") or not own.get("ca"):
        return None
    key = Path(str(own["key"]))
    certificate = key.with_name(f"{key.name}.crt")
    return Identity(key, certificate, Path(str(own["ca"]))) if certificate.exists() else None


def _refuse_few(examples: int, batch: int | str, own: Mapping[str, Any]) -> None:
    """Refuse too few examples: a gradient is a sum over them, and hides them only if many."""
    estimate = gradients.gradient("full" if batch == "auto" else batch)
    together = min(examples, estimate.size) if isinstance(estimate, Minibatch) else examples
    least = int(own.get("min-examples", MIN_EXAMPLES))
    if together < least:
        raise ScafflixError(
            f"Client {own['client']} trains on {examples} examples, {together} at a time, so few "
            f"that its messages could reveal them; at least {least} are needed, so give it more "
            "examples, a larger batch, or a lower --min-examples."
        )


def _check_known(model: str) -> None:
    if is_own(model):
        raise ScafflixError(
            f"The run trains the PyTorch module {model}, and a node never loads a file that a "
            "server names; start the node with --model FILE.py:NAME, with a file of its own."
        )
    if not is_network(model) and model not in MODELS:
        known = ", ".join((*MODELS, *NETWORKS))
        raise ScafflixError(f"model is {model!r}; it must be one of {known}.")


def learner_on(examples: Federation, config: DeployConfig, classes: tuple[Any, ...]) -> Learner:
    """The model of the configuration on a node's examples."""
    if is_network(config.model):
        federation, places = numbered(examples, classes)
        return NetworkLearner(
            federation,
            network_of(config.model, federation, places),
            config.l2 or 0.0,
            gradient=estimate_of(config),
            model_seed=config.model_seed,
            recipe=recipe_on_node(config),
        )
    if not classes and config.model != "linear":
        raise ScafflixError(
            "classes is empty; list all labels that occur at any node, as a node may lack some."
        )
    return ConvexLearner(
        examples,
        MODELS[config.model](),
        LINEAR_L2 if config.l2 is None else config.l2,
        smoothness=config.smoothness,
        gradient=estimate_of(config),
        start=config.start,
        classes=classes or None,
    )
