#!/usr/bin/env python3
"""200 requests made by schemathesis from /openapi.json (schema_requests.py says what must hold of each); long_schemathesis.py
makes 2,000."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import main  # noqa: E402
from schema_requests import run  # noqa: E402


def test_200_requests_are_answered_as_described():
    print(run(200))


main(globals())
