"""Secure aggregation: the server learns the sum of a cohort's messages and no single one.

The protocol is that of Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and
Seth, "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (2017). In each attempt
at a round, in this order:

Train   -> Keys      a client trains, and answers with fresh public keys
Share   -> Shares    it shares its two secrets among the cohort, sealed for each of them
Mask    -> Masked    it sends its numbers in fixed point, plus a mask of its own and one for each
                     pair, which cancel in the sum
Unmask  -> Unmasked  the survivors reveal, of each client, either a share of its own mask (it is in
                     the sum) or a share of its key (it is not), never both
"""
