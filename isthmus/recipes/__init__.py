"""Complete configs by name: a recipe is a function that returns a RunConfig or a StudyConfig."""
