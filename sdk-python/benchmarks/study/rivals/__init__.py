"""Other products' samplers, each imported only if it is run."""
