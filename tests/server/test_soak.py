#!/usr/bin/env python3
"""Two minutes of mixed traffic (less with a sanitizer): memory stays, no slot is stuck, counters add up."""
from serving import SLOW, main
from soak import seconds_asked, soak


def test_soak():
    soak(seconds_asked(25 if SLOW else 120))


if __name__ == "__main__":
    main(globals())
