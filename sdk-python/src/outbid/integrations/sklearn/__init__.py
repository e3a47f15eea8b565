"""scikit-learn's searches as sweeps."""
