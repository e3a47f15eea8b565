"""A user-defined tuner: tries the points of a golden-ratio sequence and continues the better ones."""

from outbid import plugin

GOLDEN = 0.6180339887498949
SHORT, LONG = 2, 6


class Golden(plugin.Tuner):
    """Trains `trials` points for SHORT steps, and continues those better than all earlier ones for LONG steps."""

    def start(self):
        self.trials = self.spec.settings.whole("trials", least=1)
        self.state = self.state or {"best": None}

    def ask(self, n):
        for _ in range(min(n, self.trials - self.created)):
            share = (self.created + 1) * GOLDEN % 1
            reason = f"point {self.created} of the sequence"
            yield plugin.Create(self.spec.space.at(share), until_step=SHORT, reason=reason)

    def reached(self, report):
        if report.step >= LONG:
            yield plugin.End(report.trial, reason="trained to the end")
        elif self.spec.better(report.metric, self.state["best"]):
            self.state["best"] = report.metric
            yield plugin.Train(report.trial, until_step=LONG, reason="the best so far")
        else:
            yield plugin.End(report.trial, completed=False, reason="another was better")

    def exhausted(self):
        return self.created >= self.trials


if __name__ == "__main__":
    plugin.serve(Golden())
