"""Step 2 of the way of the data: splits become batches, a loss and metrics. One file per task."""
