"""long_memory.py - the shape of BitNet b1.58 2B-4T: 1.2 GB packed, then as masters in shards, 4.8 GB."""
import os
import subprocess
import sys

import memory

here = os.path.dirname(os.path.abspath(__file__))
if len(sys.argv) > 1:
    memory.measure(200, 5 << 30, [["--type", "i2_s"]], "--form", "online", "--shards", "3")
if subprocess.call([sys.executable, os.path.join(here, "long_memory.py"), "masters"]) not in (0, 77):
    sys.exit(1)
memory.measure(200, 1300 << 20, [["--type", "i2_s"], ["--type", "tq2_0", "--embedding", "q8_0"]])
