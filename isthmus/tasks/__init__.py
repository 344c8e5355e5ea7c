"""Tasks turn the splits of a source into batches, a loss, metrics and predictions; one file per task."""
