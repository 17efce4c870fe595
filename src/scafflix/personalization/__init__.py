"""alpha_i, x_i* and the mixture of the two."""
