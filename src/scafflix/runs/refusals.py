"""What is refused before any work: by the keys, before data are read or fetched; then by the keys
and the data, before anything is compiled or looked for."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from scafflix import theory
from scafflix.core.arguments import choice, real_number
from scafflix.core.cache import cache_folder
from scafflix.core.checks import (
    check_controls,
    check_part,
    check_rounds,
    check_seed,
    check_start,
)
from scafflix.core.errors import ScafflixError
from scafflix.core.folders import check_new_folder
from scafflix.data import Federation
from scafflix.gradients import Gradient, Noisy, check_batch
from scafflix.methods import Method, find, parameters
from scafflix.methods.method import fitted
from scafflix.methods.private import releasing
from scafflix.methods.remembering import remembering
from scafflix.models import MODELS, is_network
from scafflix.models.naming import array_names, check_model
from scafflix.personalization.alphas import check_trained, checked_alpha, read_alpha, rule_in
from scafflix.personalization.optima import check_validation
from scafflix.personalization.recipe import checked_recipe
from scafflix.privacy.terms import PLACES, UNITS, Limit, checked_release
from scafflix.problems.constants import Constants
from scafflix.runs.assembly import (
    alpha_of,
    estimate_of,
    make_method,
    noise_of,
    private_method,
    recipe_of,
    resolve,
    rounds_of,
    served,
    training_alpha,
    trial_method,
)
from scafflix.runs.config import OPTIMA, PARAMETERS, PRIVATE, SAMPLED, WARM, RunConfig
from scafflix.simulate.accounting import check_begin, check_mixing
from scafflix.simulate.bits import remembers
from scafflix.simulate.planning import check_choice
from scafflix.simulate.recording import KEEP
from scafflix.simulate.schedule import (
    Schedule,
    check_sampled,
    check_schedule,
    check_store,
    check_unsampled,
)

WAYS = ("auto", "common", "warm", "after", "none")  # to local optima


def check_read(config: RunConfig, network: bool | None = None) -> None:
    """Refuse a key that the chosen model or method does not read, and say for what it is."""
    here, known = served(config, network), parameters(find(config.method))
    for entry in fields(config):
        if getattr(config, entry.name) == entry.default:
            continue
        only = entry.metadata["only"]
        if only is not None and only not in here:
            raise ScafflixError(
                f"{entry.name} is for {only}; with {_circumstances(config, only)} leave it out."
            )
        if entry.name in PARAMETERS and entry.name not in known:
            raise ScafflixError(f"The method {config.method} has no {entry.name}; leave it out.")


def _circumstances(config: RunConfig, only: str) -> str:
    """What makes this run another kind than a key is for."""
    if only == PRIVATE:
        return "privacy none"
    if only == SAMPLED:
        return f"the model {config.model} and no cohort"
    if only in (OPTIMA, WARM) and is_network(config.model):
        return f"optima {config.optima}"
    return f"the model {config.model}"


def check_keys(config: RunConfig) -> None:
    """Refuse what is wrong whatever the data are."""
    method, rule = trial(config), rule_in(config.alpha)
    if config.privacy != "none":
        releasing(remembering(private_method(method, config)), array_names(config.model))
    if rule is not None or config.optima == "after":
        check_choice(rule, method)
    if config.h0 != "zero" and not remembers(method):
        raise ScafflixError(
            f"h0 is for control variates, and the method {config.method} has none; leave it out."
        )


def trial(config: RunConfig) -> Method:
    """The method for one client, with constants that suit everything; refuse on the way
    what is wrong whatever the data are."""
    check_model(config.model)
    check_read(config)
    check_privacy(config)
    config = resolve(config)
    if is_network(config.model):
        method = check_network_keys(config)
        return method if method.fit is None else fitted(method, array_names(config.model))
    estimate, one = _check_common(config), np.ones(1)
    if config.l2 == 0 and MODELS[config.model]().curvature[0] == 0:
        raise ScafflixError(
            f"l2 is 0, and without it the model {config.model} is not strongly convex, so that "
            "a local optimum may not exist; give l2 > 0."
        )
    advice = theory.advise(one, Constants(one, one / 2, one), estimate, one, 0 * one)
    return fitted(make_method(advice, config), array_names(config.model))


def check_network_keys(config: RunConfig) -> Method:
    """The same for a network, by whatever name, with its defaults written out."""
    estimate = _check_common(config)
    if isinstance(estimate, Noisy):
        raise ScafflixError("Networks take minibatch or exact gradients, without added noise.")
    choice("optima", config.optima, WAYS)
    if config.transport == "float32":
        raise ScafflixError(
            "transport is float32, and so are networks; use bfloat16, or leave it out."
        )
    if isinstance(config.stepsize, str) or not 0 < config.stepsize < np.inf:
        raise ScafflixError(
            f"stepsize is {config.stepsize!r}; for a network it must be a number above 0."
        )
    if config.optima != "none":
        checked_recipe(recipe_of(config))
    if config.optima == "warm":
        check_rounds(config.warmup, "warmup")
        theory.chosen_stepsize(config.warmup_stepsize, 1.0, "warmup_stepsize")
    check_new_folder(cache_folder(), force=True)
    if config.optima == "after":
        check_trained(config.alpha)
    return trial_method(config)


def check_data(config: RunConfig, federation: Federation) -> None:
    """Refuse what these data do not allow."""
    config, network = resolve(config), is_network(config.model)
    checked_alpha(alpha_of(config), len(federation.clients), config.optima != "none")
    alpha = training_alpha(config, len(federation.clients))
    active = np.flatnonzero(alpha)
    check_batch(estimate_of(config), federation, None if network or not len(active) else active)
    if config.part == "validation" and federation.validation is None:
        raise ScafflixError(
            "There are no validation data to look at; give validation, such as 0.1."
        )
    every = 1 if config.every is None else config.every
    rounds = rounds_of(config)
    schedule = Schedule(rounds=rounds, cohort=config.cohort, every=every, part=config.part)
    check_schedule(schedule, alpha, federation, not network)
    if network and config.optima != "none":
        check_validation(federation)
    if network or config.cohort not in (None, len(active)):
        check_sampled(estimate_of(config), config.h0)
    else:
        check_unsampled(config.every, config.store)


def _check_common(config: RunConfig) -> Gradient:
    check_rounds(config.rounds)
    check_seed(config.seed)
    check_seed(config.model_seed, "model_seed")
    check_part(config.part)
    choice("smoothness", config.smoothness, ("tight", "bound"))
    if config.epsilon is not None:
        real_number("epsilon", config.epsilon, above=True)
    check_start(config.start)
    check_controls(config.h0)
    check_store(config.store)
    choice("keep", config.keep, KEEP)
    for name in ("cohort", "every"):
        if getattr(config, name) is not None:
            check_rounds(getattr(config, name), name)
    check_alpha(config)
    if config.l2 is not None:
        real_number("l2", config.l2)
    return estimate_of(config)


def check_alpha(config: RunConfig) -> None:
    """Refuse an alpha that is none, and a rule without what it goes by."""
    read_alpha(alpha_of(config), None)
    rule = rule_in(config.alpha)
    if is_network(config.model):
        check_rule(rule, f"network {config.model}")
    elif rule == "validation" and not config.validation:
        raise ScafflixError(
            "alpha is 'validation', but no examples are held out for it; give validation, such "
            "as 0.1."
        )


def check_rule(rule: str | None, model: str) -> None:
    """Refuse a rule that only linear models can serve, for another model."""
    if rule in ("loo", "james-stein"):
        raise ScafflixError(
            f"alpha is {rule!r}, which needs the Hessian of a linear model; for the {model} use "
            "validation."
        )


def check_privacy(config: RunConfig) -> None:
    """Refuse privacy that would protect nothing, or whose noise nobody knows."""
    choice("privacy", config.privacy, ("none", *UNITS))
    if config.privacy == "none":
        return
    choice("noise_at", config.noise_at, PLACES)
    if config.privacy == "example" and config.noise_at != "client":
        raise ScafflixError(
            f"noise_at is {config.noise_at}, but with privacy example the noise is in every "
            "gradient, at the client; leave it out, or give privacy client."
        )
    Limit(config.delta, config.budget)
    if config.clip is None:
        raise ScafflixError(
            "clip is missing: noise hides nothing that has no bound; give clip, such as 1."
        )
    checked_release(config.clip, noise_of(config))
    if config.noise_multiplier is None and config.budget is None:
        raise ScafflixError("Give noise_multiplier, or budget, the epsilon to choose it by.")
    if config.noise_multiplier is not None:
        real_number("noise_multiplier", config.noise_multiplier, above=True)
    if config.noise_multiplier is None and config.epsilon is not None:
        raise ScafflixError(
            "epsilon chooses stepsizes by the noise, and budget the noise by the steps; give "
            "noise_multiplier too."
        )
    check_begin(config.privacy, config.h0, config.optima == "warm")
    check_mixing(config.privacy, training_alpha(resolve(config), None))
