"""Programs of others that judge the server, each in a virtual environment of its own below build/: judges(name, packages) is the
Python there, made at the first call. Where a package cannot be fetched, the test that asks is skipped and says which."""
import os
import subprocess
import sys

from serving import SOURCE, Skip

FETCH_S = 1500  # the largest of them is more than a gigabyte


def pip(python, package):
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--prefer-binary", package]
    try:
        return subprocess.run(command, check=False, timeout=FETCH_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def judges(name, packages):
    folder = os.path.join(SOURCE, "build", name)
    python, complete = os.path.join(folder, "bin", "python"), os.path.join(folder, ".complete")
    if not os.path.exists(complete):
        if subprocess.run([sys.executable, "-m", "venv", folder], check=False).returncode:
            raise Skip("Python's venv is not there (Debian's package python3-venv)")
        for package in packages:
            if not pip(python, package):
                raise Skip(f"the Python package {package} cannot be fetched within {FETCH_S} s")
        with open(complete, "w", encoding="ascii"):
            pass
    return python


def without_proxies():
    """The environment for a client that talks to this machine alone."""
    return {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
