"""What every operator is written against: the operator interface, batches, edges, watermarks."""
