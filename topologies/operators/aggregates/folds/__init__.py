"""How records get into the entries of a store. ``choice`` picks a strategy when an aggregation is opened."""
