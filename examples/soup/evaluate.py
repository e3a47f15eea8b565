"""Print the accuracy of a checkpoint on data that no trial reported on."""

from __future__ import annotations

import os
import sys

import model
from safetensors.numpy import load_file

part = sys.argv[1] if len(sys.argv) > 1 else "selection"
print(model.accuracy(load_file(os.environ["OUTBID_CHECKPOINT"]), part))
