"""Output for people: progress in terminals and notebooks, tables, plots and failures."""
