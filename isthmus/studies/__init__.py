"""Step 6 of the way of the data: many runs that answer one question."""
