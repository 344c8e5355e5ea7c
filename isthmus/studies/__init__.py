"""Many runs that answer one question: plan, sample, prune, store, execute; fronts and statistics."""
