"""Other libraries on Outbid: scikit-learn, Optuna, Syne Tune, training frameworks and loggers."""
