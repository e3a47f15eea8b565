"""Problems with several objectives, all of which are minimised."""
