"""Step 4 of the way of the data: built objects in, selected weights and metrics out."""
