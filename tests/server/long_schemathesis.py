#!/usr/bin/env python3
"""2,000 requests made by schemathesis from /openapi.json; schema_requests.py says what must hold of each."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import main  # noqa: E402
from schema_requests import run  # noqa: E402


def test_2000_requests_are_answered_as_described():
    print(run(2000, seed=11))


main(globals())
