"""How records are applied to the entries of a store. ``choice`` picks a strategy when an aggregation is opened."""
