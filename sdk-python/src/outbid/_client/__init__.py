"""The connection to a server, a handle for each submitted sweep, and the local server."""
