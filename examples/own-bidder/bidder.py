"""A user-defined bidder: it uses only as much of the cluster as a sweep needs to end in time.

The sweep's settings for it, `agent.settings`, are the total time that it may take, `minutes`, and the allowed `types`
of devices; any type if the list is empty.
"""

from outbid import plugin


class Frugal(plugin.Bidder):
    """Bids for the smallest subset of the offer that lets the sweep end in time; for any subset if none is enough."""

    def bid(self, offer, app):
        deadline = 60 * app.settings.number("minutes", least=0)
        types = app.settings.value("types", [])
        own = app.own  # the bid that the server's own bidder would make

        def total(rho):
            return rho * own.ideal  # rho is the time here divided by the time alone

        if total(own.rho) <= deadline:
            return plugin.NoBid(f"it will be done in {total(own.rho):.0f} s with what it has")
        rows = [row for row in own.rows if not types or all(g.type in types for g in row.gangs)]
        in_time = [row for row in rows if total(row.rho) <= deadline]
        if in_time:
            rows = [min(in_time, key=lambda row: (row.size, row.rho))]
        return plugin.Bid(own.rho, own.ideal, tuple(rows))


if __name__ == "__main__":
    plugin.serve(Frugal())
