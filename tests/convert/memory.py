"""memory.py - converts a made checkpoint of a given shape and looks at the converter's peak resident memory."""
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("BITNET_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("BITNET_BUILD") or os.path.join(SOURCE, "build", "release")


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def sanitized():
    try:
        with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
            return any(line.startswith("BITNET_SANITIZE") and line.split("=", 1)[1].strip() for line in f)
    except OSError:
        return False


def measure(limit_mib, n_bytes, runs, *shape):
    """Makes a checkpoint of that shape (about n_bytes); every run (driver options) must stay below the limit."""
    driver = os.path.join(BUILD, "tests", "convert_driver")
    if not os.path.exists(driver):
        skip("convert_driver is not built")
    if sanitized():
        skip("a sanitizer's shadow memory is no measure")
    if shutil.disk_usage(BUILD).free < 3 * n_bytes:
        skip("%d MB of disk are needed below %s" % (3 * n_bytes >> 20, BUILD))
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        made, out = os.path.join(folder, "model"), os.path.join(folder, "out.gguf")
        subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "make_hf_model"), made, *shape], check=True)
        n_input = sum(os.path.getsize(os.path.join(made, f)) for f in os.listdir(made))
        for options in runs:
            done = subprocess.run([driver, made, out, *options, "--rss"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit("conversion failed: " + done.stderr)
            peak = int(done.stdout) >> 10
            print("%d MiB in, %d MiB out, peak %d MiB %s" % (n_input >> 20, os.path.getsize(out) >> 20, peak, options))
            if peak > limit_mib:
                sys.exit("peak %d MiB exceeds %d MiB" % (peak, limit_mib))
    sys.exit(0)
