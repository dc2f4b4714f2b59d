"""Requests that schemathesis makes from /openapi.json, for test_schemathesis.py and long_schemathesis.py: valid and invalid ones
of every operation. What must hold of every reply: it comes within 10 s; its status, its content type, its headers and its body
are as described; it is no 5xx but a 503 with Retry-After. Afterwards the server answers as before, and ends well."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server, check, equal, model, packages  # noqa: E402

packages("schemathesis")
import hypothesis  # noqa: E402
import requests  # noqa: E402
import schemathesis  # noqa: E402
from schemathesis import GenerationMode, checks  # noqa: E402

LONGEST_S = 10
CHECKS = [checks.status_code_conformance, checks.content_type_conformance, checks.response_headers_conformance,
          checks.response_schema_conformance]
NAMES = ["nano", "nano:latest", "nobody", ""]


class Asker:
    """Sends the cases of all operations to a server; counts them and what went wrong."""

    def __init__(self, server):
        self.server, self.n, self.slowest, self.statuses = server, 0, 0.0, {}
        self.session = requests.Session()
        self.schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
        self.operations = [r.ok() for r in self.schema.get_all_operations()]

    def ask(self, case, names):
        """`names`: which model the request shall mean, where it names one at all; schemathesis alone would never find one."""
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str) and names:
            case.body["model"] = names
        began = time.monotonic()
        response = case.call(base_url=self.server.url, session=self.session, timeout=LONGEST_S + 20)
        took = time.monotonic() - began
        self.n += 1
        self.slowest = max(self.slowest, took)
        status = response.status_code
        self.statuses[status] = self.statuses.get(status, 0) + 1
        said = f"{case.method} {case.formatted_path} {str(case.body)[:400]!r}: {status}"
        check(took <= LONGEST_S, f"{said} after {took:.1f} s")
        check(status < 500 or (status == 503 and "retry-after" in {k.lower() for k in response.headers}),
              f"{said} {response.content[:300]!r}")
        case.validate_response(response, checks=CHECKS)

    def ask_all(self, operation, mode, n, seed):
        @hypothesis.seed(seed)
        @hypothesis.settings(max_examples=n, deadline=None, database=None, derandomize=False,
                             phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode), names=hypothesis.strategies.sampled_from(NAMES))
        def one(case, names):
            self.ask(case, names)
        one()


def run(n_wanted, seed=1):
    """Sends at least n_wanted requests, a quarter of them invalid; returns what there is to say."""
    with Server("--model", model("nano")) as server:
        asker, failures, n_round = Asker(server), [], 0
        equal(len(asker.operations) > 25, True, "operations in the description")
        while asker.n < n_wanted and n_round < 20 and not failures:
            each = max(1, (n_wanted - asker.n) // (len(asker.operations) * 4 // 3) + 1)
            for operation in asker.operations:
                for mode, n in ((GenerationMode.POSITIVE, each), (GenerationMode.NEGATIVE, (each + 2) // 3)):
                    try:
                        asker.ask_all(operation, mode, n, seed + n_round)
                    except hypothesis.errors.Unsatisfiable:
                        pass  # an operation without a body or a parameter cannot be asked wrongly
                    except Exception as e:  # every operation is asked, whatever the one before said
                        failures.append(f"{operation.label} ({mode.value}): {explain(e)}")
            n_round += 1
        check(not failures, f"{len(failures)} operations: " + "\n".join(failures[:8]))
        end = time.monotonic() + 10
        while server.json("GET", "/slots") and time.monotonic() < end:
            time.sleep(0.05)  # what a deadline cut off ends with its next step
        equal(server.json("GET", "/slots"), [], "slots that are still busy")
        check(len(server.json("POST", "/v1/inference", {"prompt": "Once", "max_tokens": 4})["text"]) > 0, "it answers no more")
    return f"{asker.n} requests, slowest {asker.slowest:.2f} s, statuses {dict(sorted(asker.statuses.items()))}"


def explain(e):
    inner = getattr(e, "exceptions", None)
    text = "; ".join(str(x) for x in inner) if inner else str(e)
    return " ".join(f"{type(e).__name__} {text}".split())[:900]
