"""Write curves of LCBench's surrogate as tables.

    lcbench.py SURROGATE.onnx CONFIG_SPACE.json OUT.jsonl.gz [CONFIGURATIONS]

YAHPO Gym's surrogate (Pfisterer et al. 2022) is a network that maps the data set, seven hyperparameters and the epoch
to six metrics. The script keeps the validation accuracy, in percent, at epochs 1 to 52. All data sets use the same
configurations, drawn from seed 12. The inputs are in the order of the network's normalisation constants. Tables are
numbered like the rows of the network's embedding, from 1; the data set of a row is unknown. Needs numpy and
onnxruntime.
"""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import onnxruntime

ORDER = ["epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout"]
EPOCHS = 52


def main(surrogate: str, config_space: str, out: str, configurations: str = "1000") -> None:
    """Evaluate the surrogate and write one line for each data set."""
    with open(config_space) as file:
        space = {p["name"]: p for p in json.load(file)["hyperparameters"]}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(surrogate, options)
    rng, n = np.random.default_rng(12), int(configurations)
    names = ORDER[1:]
    columns = []
    for name in names:
        p, u = space[name], rng.random(n)
        low, high = p["lower"], p["upper"]
        x = low * (high / low) ** u if p["log"] else low + (high - low) * u
        columns.append(np.round(x) if p["type"] == "uniform_int" else x)
    rows = np.stack(columns, 1)
    grid = np.repeat(rows, EPOCHS, axis=0)
    epochs = np.tile(np.arange(1, EPOCHS + 1), n)[:, None]
    inputs = np.hstack([epochs, grid]).astype(np.float32)
    with gzip.open(out, "wt") as file:
        # The embedding's first row is for an unknown data set.
        for number in range(1, 1 + len(space["OpenML_task_id"]["choices"])):
            categories = np.full((len(inputs), 1), number, np.int32)
            (values,) = session.run(None, {"x_cat": categories, "x_cont": inputs})
            accuracy = np.round(values[:, 1].reshape(n, EPOCHS), 4)
            line = {
                "task": f"row-{number:02d}",
                "parameters": names,
                "rows": rows.tolist(),
                "val_accuracy": accuracy.tolist(),
            }
            file.write(json.dumps(line) + "\n")


main(*sys.argv[1:])
