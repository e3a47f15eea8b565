"""Parts that all other packages use: errors, validation, pickling and the conversion of messages."""
