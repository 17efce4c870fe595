"""alpha that chooses itself: rules that give every client its own once x is there."""
