"""A model on a federation: values, gradients, scores and constants of each f_i."""
