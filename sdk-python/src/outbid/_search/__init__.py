"""The description of a search: a sweep, its space, its tuner, its resources."""
