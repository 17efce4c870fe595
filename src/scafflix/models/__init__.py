"""Models: pure functions from parameters and examples to losses."""

from scafflix.models.linear import LinearModel, linear, logistic, softmax

MODELS = {"logistic": logistic, "softmax": softmax, "linear": linear}

__all__ = ["MODELS", "LinearModel", "linear", "logistic", "softmax"]
