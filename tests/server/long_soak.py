#!/usr/bin/env python3
"""The soak of test_soak.py for half an hour."""
from serving import main
from soak import seconds_asked, soak


def test_long_soak():
    soak(seconds_asked(1800))


if __name__ == "__main__":
    main(globals())
