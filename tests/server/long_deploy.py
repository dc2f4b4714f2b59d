#!/usr/bin/env python3
"""The files of deploy/: each is checked by its own tool where there is one, and skipped by name where there is none; names of
metrics and options in them are those of the command under test."""
import glob
import json
import os
import re
import shutil
import subprocess

from serving import PYTHON, SOURCE, Server, Skip, check, expect, main, model, packages, temp

DEPLOY = os.path.join(SOURCE, "deploy")


# where administrators' commands are, and what tools/setup has unpacked
os.environ["PATH"] += os.pathsep + os.pathsep.join(("/usr/sbin", os.path.join(SOURCE, "build", "promtool", "usr", "bin")))


def tool(name, package):
    if not shutil.which(name):
        raise Skip(f"{name} is not there (Debian's package {package}; tools/setup all fetches it)")
    return name


def says(*command, cwd=None, code=0):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == code, f"{' '.join(command)}: {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout + done.stderr


def text(*parts):
    with open(os.path.join(DEPLOY, *parts), encoding="utf-8") as f:
        return f.read()


def certificate():
    """A file with a certificate and its key, made by us for the moment."""
    tool("openssl", "openssl")
    says("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-keyout", temp("key.pem"), "-out", temp("cert.pem"))
    with open(temp("both.pem"), "w", encoding="ascii") as both:
        for part in ("cert.pem", "key.pem"):
            with open(temp(part), encoding="ascii") as f:
                both.write(f.read())
    return temp("both.pem")


def test_haproxy():
    tool("haproxy", "haproxy")
    config = temp("haproxy.cfg")
    with open(config, "w", encoding="utf-8") as f:
        f.write(text("haproxy", "haproxy.cfg").replace("/etc/haproxy/bitnet.pem", certificate()))
    said = says("haproxy", "-c", "-f", config)
    check("valid" in said and "WARNING" not in said, said)
    with open(config, "a", encoding="utf-8") as f:
        f.write("    no-such-keyword 1\n")
    says("haproxy", "-c", "-f", config, code=1)  # it does look


def test_prometheus():
    tool("promtool", "prometheus")
    folder = os.path.join(DEPLOY, "prometheus")
    check("SUCCESS" in says("promtool", "check", "config", "--syntax-only", "prometheus.yml", cwd=folder), "config")
    check("SUCCESS" in says("promtool", "check", "rules", "bitnet.rules.yml", cwd=folder), "rules")
    check("SUCCESS" in says("promtool", "test", "rules", "rules.test.yml", cwd=folder), "alerts")


def check_config(config, code=0):
    """Debian's promtool is built without Kubernetes: all but the search for pods is then checked, with an address in its place."""
    pods, address = "kubernetes_sd_configs:\n      - role: pod\n", "static_configs:\n      - targets: [127.0.0.1:8080]\n"
    check(pods in config, "the search for pods")
    for written in (config, config.replace(pods, address)):
        with open(temp("config.yml"), "w", encoding="utf-8") as f:
            f.write(written)
        command = ["promtool", "check", "config", "--syntax-only", temp("config.yml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if "kubernetes_sd_configs not found" not in done.stderr:
            break
    check(done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}")


def test_prometheus_in_a_cluster():
    tool("promtool", "prometheus")
    config = text("prometheus", "kubernetes.yml")
    check_config(config)
    check_config(config.replace("action: keep", "action: keeps"), code=1)  # it does look


def job(name):
    packages("yaml")
    import yaml
    return yaml.safe_load(text("prometheus", name))["scrape_configs"][0]


def relabelled(rules, labels):
    """What Prometheus makes of a pod's labels: None where it is left out. Rules as in our file alone: keep, or a label from another."""
    for rule in rules:
        value = ";".join(labels.get(name, "") for name in rule["source_labels"])
        if rule.get("action") == "keep" and not re.fullmatch(rule["regex"], value):
            return None
        if "target_label" in rule:
            labels = {**labels, rule["target_label"]: value}
    return {k: v for k, v in labels.items() if not k.startswith("__")}


def test_the_autoscaler_gets_its_metric():
    """Pods of the Deployment are found, with a key and with the labels by which the adapter knows a figure's pod."""
    packages("yaml")
    import yaml
    deployment = next(yaml.safe_load_all(text("kubernetes", "bitnet.yaml")))["spec"]["template"]
    found = job("kubernetes.yml")
    meta = "__meta_kubernetes_"
    pod = {f"{meta}pod_label_app": deployment["metadata"]["labels"]["app"], f"{meta}pod_container_port_name": deployment["spec"]["containers"][0]["ports"][0]["name"],
           f"{meta}pod_phase": "Running", f"{meta}namespace": "models", f"{meta}pod_name": "bitnet-1"}
    got = relabelled(found["relabel_configs"], pod)
    check(got == {"namespace": "models", "pod": "bitnet-1"}, f"labels of a pod: {got}")
    for name, other in ((f"{meta}pod_label_app", "x"), (f"{meta}pod_phase", "Pending"), (f"{meta}pod_container_port_name", "admin")):
        check(relabelled(found["relabel_configs"], {**pod, name: other}) is None, f"{name} {other} is scraped")
    wanted = re.findall(r'(\w+)!=""', yaml.safe_load(text("kubernetes", "adapter.yaml"))["rules"]["custom"][0]["seriesQuery"])
    check(wanted and set(wanted) <= set(got), f"the adapter wants {wanted}")
    check("annotations" not in deployment["metadata"], "annotations that make Prometheus scrape without a key")
    check(found["job_name"] == job("prometheus.yml")["job_name"] == "bitnet", "the job that the alerts know")
    keys = any(a.startswith("--api-key") for a in deployment["spec"]["containers"][0]["args"])
    check(keys and "credentials_file" in found["authorization"], "keys are set, and Prometheus has none")
    check("authorization" not in job("prometheus.yml"), "a file with a key that is nowhere asked for")


def test_kubernetes():
    validate = os.path.join(os.path.dirname(PYTHON), "kubernetes-validate")
    if not os.path.exists(validate):
        raise Skip("PyPI's kubernetes-validate is not in build/venv")
    said = says(validate, "--strict", os.path.join(DEPLOY, "kubernetes", "bitnet.yaml"))
    check(said.count("passed for resource") == 4, said)
    bad = temp("bad.yaml")
    with open(bad, "w", encoding="utf-8") as f:
        f.write(text("kubernetes", "bitnet.yaml").replace("livenessProbe:", "livelinessProbe:"))
    check(subprocess.run([validate, "--strict", bad], capture_output=True, check=False).returncode != 0, "a wrong field passed")


def test_systemd():
    tool("systemd-analyze", "systemd")
    folder = temp("units")
    os.makedirs(folder, exist_ok=True)
    for name in ("bitnet.service", "bitnet.socket"):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text("systemd", name).replace("/usr/bin/bitnet ", "/bin/true ").replace("Documentation=man:bitnet(1)\n", ""))
    said = says("systemd-analyze", "verify", os.path.join(folder, "bitnet.service"), os.path.join(folder, "bitnet.socket"))
    check("bitnet" not in said, said)
    said = says("systemd-analyze", "security", "--offline=true", os.path.join(folder, "bitnet.service"))
    level = float(re.search(r"exposure level for bitnet.service: ([\d.]+)", said).group(1))
    check(level < 2.5, f"exposure {level}")


def test_grafana_is_a_dashboard():
    board = json.loads(text("grafana", "bitnet.json"))
    ids = [p["id"] for p in board["panels"]]
    check(len(ids) == len(set(ids)) and all(p["targets"] and p["title"] for p in board["panels"]), "panels")


def test_names_of_metrics():
    """Every bitnet_... of deploy/ is a name that the server tells, and promtool accepts all of them."""
    with Server("--model", model("nano")) as s:
        s.post("/v1/completions", {"prompt": "Once", "max_tokens": 4})
        _, _, body = s.get("/metrics")
    told = set(re.findall(r"^# TYPE (bitnet_\w+) ", body.decode(), re.M))
    for path in glob.glob(os.path.join(DEPLOY, "*", "*")):
        with open(path, encoding="utf-8") as f:
            for name in set(re.findall(r"\bbitnet_[a-z_]+\b(?!:)", f.read())):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                check(base in told, f"{os.path.relpath(path, DEPLOY)}: {name} is no metric of the server")
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
        check(done.returncode == 0, (done.stdout + done.stderr).decode()[-800:])


def test_names_of_options():
    """Options of the unit and of the Deployment exist."""
    known = expect(0, "serve", "--help-all").out
    given = re.findall(r"(--[a-z-]+)", "\n".join(
        line for line in (text("systemd", "bitnet.service") + text("kubernetes", "bitnet.yaml")).splitlines()
        if line.startswith("ExecStart=") or line.strip().startswith("- --")))
    check(len(given) >= 6, f"{given}")
    for option in given:
        check(option in known, f"{option} is no option of bitnet serve")


if __name__ == "__main__":
    main(globals())
