#!/usr/bin/env python3
"""bitnet validate as it is without --quick: every kernel that this CPU runs, on all shapes (V-2)."""
from harness import check, equal, expect, main


def test_every_kernel_on_all_shapes():
    d = expect(0, "validate", "--kernels-only", "--json", timeout=900).json()
    failed = [a for a in d["accuracy"] if a["verdict"] == "fail"]
    equal(failed, [], "failed")
    passed = {a["kernel"] for a in d["accuracy"] if a["verdict"] == "pass"}
    there = {k["id"] for k in expect(0, "kernels", "--json").json()["kernels"] if k["available"] and k["device"] == "cpu"}
    check(len(passed) > 40 and there <= passed, f"not compared: {sorted(there - passed)}")


if __name__ == "__main__":
    main(globals())
