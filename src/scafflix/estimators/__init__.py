"""The way of a run as scikit-learn's estimators."""
