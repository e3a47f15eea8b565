"""Problems with several objectives to minimise."""
