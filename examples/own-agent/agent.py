"""An agent of one's own: it takes no more of the cluster than a sweep needs to be done in time.

What the sweep says to it, `agent.settings`, is the time it may take in all, `minutes`, and the `types` of devices that
it may use; any if there are none.
"""

from outbid import plugin


class Frugal(plugin.Agent):
    """Bids for the smallest subset of the offer with which the sweep is done in time; for any if none will do."""

    def bid(self, offer, app):
        deadline = 60 * app.settings.number("minutes", least=0)
        types = app.settings.value("types", [])
        own = app.own  # what the server's own agent would bid

        def total(rho):
            return rho * own.ideal  # rho is the time that it takes here over the time it would take alone

        if total(own.rho) <= deadline:
            return plugin.NoBid(f"it will be done in {total(own.rho):.0f} s with what it has")
        rows = [row for row in own.rows if not types or all(g.type in types for g in row.gangs)]
        in_time = [row for row in rows if total(row.rho) <= deadline]
        if in_time:
            rows = [min(in_time, key=lambda row: (row.size, row.rho))]
        return plugin.Bid(own.rho, own.ideal, tuple(rows))


if __name__ == "__main__":
    plugin.serve(Frugal())
