"""``penstock check-determinism``: run a topology several ways over the same records and name the operator whose answer
depends on more than them."""
