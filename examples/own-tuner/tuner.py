"""A tuner of one's own, in Python: the points of a golden-ratio sequence, a third of them trained on.

The server starts this program, reads the line that it prints, and then calls the service TunerService of
proto/outbid/v1/plugin.proto. Every call is answered from values alone, and Snapshot returns them all, so that the
sweep goes on where it was when the server was started again.
"""

import json
import os
import threading
from concurrent import futures

import grpc
from outbid.v1 import event_pb2 as events
from outbid.v1 import plugin_pb2 as pb
from outbid.v1 import plugin_pb2_grpc as rpc

GOLDEN = 0.6180339887498949
SHORT, LONG = 2, 6


class Tuner(rpc.TunerServiceServicer):
    """Trains `trials` points for SHORT steps, and those better than all before them for LONG ones."""

    def Configure(self, request, context):
        settings = request.spec.tuner.plugin.settings
        if "trials" not in settings:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "tuner.plugin.settings.trials: is missing")
        self.trials = int(settings["trials"])
        self.sign = 1 if request.spec.mode == "min" else -1
        self.space = {name: p.float for name, p in request.spec.space.items()}
        self.state = {"created": 0, "best": None}
        if request.snapshot:
            self.state = json.loads(request.snapshot)
        return pb.ConfigureResponse(name="golden", version="1")

    def Handle(self, request, context):
        response = pb.HandleResponse()
        for event in request.events:
            kind = event.WhichOneof("kind")
            if kind == "ask":
                response.actions.extend(self.create(event.ask))
            elif kind == "reached":
                response.actions.append(self.decide(event.reached))
        response.exhausted = self.state["created"] >= self.trials
        return response

    def Snapshot(self, request, context):
        return pb.SnapshotResponse(snapshot=json.dumps(self.state).encode())

    def create(self, most):
        for _ in range(min(most, self.trials - self.state["created"])):
            number = self.state["created"]
            self.state["created"] += 1
            share = (number + 1) * GOLDEN % 1
            config = {name: p.low + share * (p.high - p.low) for name, p in self.space.items()}
            new = pb.TunerCreate(config_json=json.dumps(config, sort_keys=True), until_step=SHORT)
            yield pb.TunerAction(create=new, reason=f"point {number} of the sequence")

    def decide(self, at):
        if at.step >= LONG:
            state = events.TRIAL_STATE_COMPLETED
            return pb.TunerAction(end=pb.TunerEnd(trial=at.trial, state=state), reason="trained to the end")
        value, best = self.sign * at.metric, self.state["best"]
        if best is None or value < best:
            self.state["best"] = value
            return pb.TunerAction(train=pb.TunerTrain(trial=at.trial, until_step=LONG), reason="the best so far")
        state = events.TRIAL_STATE_STOPPED
        return pb.TunerAction(end=pb.TunerEnd(trial=at.trial, state=state), reason="another was better")


def end_with_server():
    """Wait until the other end of the server's pipe is closed: the server has gone."""
    with os.fdopen(int(os.environ["OUTBID_PLUGIN_LIFELINE"])) as pipe:
        pipe.read()


def main():
    server = grpc.server(futures.ThreadPoolExecutor(1))
    rpc.add_TunerServiceServicer_to_server(Tuner(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # go-plugin's handshake: its own version, the protocol's version, and where to call.
    print(f"1|1|tcp|127.0.0.1:{port}|grpc", flush=True)
    threading.Thread(target=lambda: (end_with_server(), server.stop(0)), daemon=True).start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
