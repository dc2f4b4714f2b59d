#!/usr/bin/env python3
"""`bitnet validate --device cuda` on the emulated GPU: every row of kernels.inc has a case that passes, and a fault in any
kernel of whole passes fails cases that name it (emulated_spoil.c makes them)."""
import functools
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_emulated import with_gpu  # noqa: E402
from harness import SOURCE, check, equal, expect, main, run  # noqa: E402

# Rows that no case covers, each with the reason. A new row of kernels.inc needs a case or a line here.
UNCOVERED = {}

# What goes wrong (a symbol of the image), the row that must be named, and whether a case of that kernel alone sees it;
# else a pass does.
FAULTS = {
    "bnet_norm_quantize": ("norm_quantize_gpu", True), "bnet_norm_tiles": ("norm_tiles_gpu", True),
    "bnet_norm_rows": ("norm_tiles_gpu", False),
    "bnet_w2_tiles_128": ("i2s_gpu_gemm_tiles", True), "bnet_w2_tiles_256": ("i2s_gpu_gemm_tiles", True),
    "bnet_w2_prompt": ("i2s_gpu_gemm_tiles", True), "bnet_w2_prompt_96": ("i2s_gpu_gemm_tiles", True),
    "bnet_w2_tiles_128_16": ("i2s_gpu_gemm_tiles", True), "bnet_w2_tiles_128_32": ("i2s_gpu_gemm_tiles", True),
    "bnet_w2_rows_16": ("i2s_gpu_gemm_tiles", True),
    "bnet_w2_rows": ("i2s_gpu_gemm_tiles", True), "bnet_attn_batch_h128": ("attention_f16_gpu_decode", True),
    "bnet_attn_batch_h128_i8": ("attention_i8_gpu_decode", True), "bnet_attn_shared_h128": ("attention_f16_gpu_decode", True),
    "bnet_attn_shared_h128_i8": ("attention_i8_gpu_decode", True), "bnet_rope_append": ("rope_append_gpu", True),
    "bnet_rope_append.k": ("rope_append_gpu", True), "bnet_rope_append.neox": ("rope_append_gpu", True),
    "bnet_attn_prefill_f16_128.neox": ("attention_gpu_prefill", True), "bnet_attn_prefill_i8_64.neox": ("attention_gpu_prefill", True),
    "bnet_attn_prefill_f16_64": ("attention_gpu_prefill", True),
    "bnet_attn_prefill_f16_128": ("attention_gpu_prefill", True), "bnet_attn_prefill_i8_64": ("attention_gpu_prefill", True),
    "bnet_attn_prefill_i8_128": ("attention_gpu_prefill", True), "bnet_topk_merge": ("topk_gpu", True),
    "bnet_topk_join": ("topk_gpu", True), "bnet_ref_topk": ("topk_gpu_ref", True), "bnet_ref_gather": ("gather_gpu", True),
    "bnet_ref_rope_table": ("rope_table_gpu", True), "bnet_ref_fetch": ("step_gpu", True), "bnet_ref_pack": ("pack_gpu", True),
    **{f"bnet_screen_{s}f{t}": (f"screen_f{t}_gpu", True) for s in ("", "pack_") for t in (16, 32)},
    "bnet_screen_bf16": ("screen_bf16_gpu", True), "bnet_screen_pack_bf16": ("screen_bf16_gpu", True),
    "bnet_screen_scan_4": ("screen_f16_gpu", True), "bnet_screen_scan_8": ("screen_f16_gpu", True), "bnet_screen_best": ("screen_f16_gpu", True),
    **{f"bnet_screen_{s}": ("screen_f16_gpu_batch", True) for s in ("split", "batch_16", "batch_32", "batch_64", "best_batch")},
    **{f"bnet_screen_{s}_{t}": (f"screen_{t}_gpu_batch", True) for s in ("first", "rest") for t in ("f16", "bf16", "f32")},
    "bnet_ref_pair": ("pack_gpu", False), "bnet_decode_step": ("i2s_gpu_layers", False),
}


def rows_of_the_tree():
    with open(os.path.join(SOURCE, "src", "backend", "cuda", "kernels.inc"), encoding="utf-8") as f:
        return re.findall(r"^KERNEL\((\w+), *\"([^\"]*)\", *\w+, *(\w+)", f.read(), re.M)


@functools.lru_cache(maxsize=None)  # some tests look at the same run
def cases(code, *args, cc=90, **env):
    r = run("validate", "--device", "cuda", "--quick", "--json", *args, env=with_gpu(cc, **env))
    check(r.code == code, f"exit {r.code}: {r.err[:300]}")
    return json.loads(r.out)["accuracy"]


def verdicts(rows, kernel):
    return [a["verdict"] for a in rows if a["kernel"] == kernel]


def test_V_2_every_row_is_covered():
    rows, tree = cases(0, "--kernels-only"), [r[0] for r in rows_of_the_tree()]
    check(len(tree) > 80, f"kernels.inc has {len(tree)} rows")
    covered = {a["kernel"] for a in rows if a["verdict"] == "pass"}
    missing = [k for k in tree if k not in covered and k not in UNCOVERED]
    check(not missing, f"no case of validate covers {missing}: add one (validate_pass_kernels.c, validate_pass.c), or say in UNCOVERED why")
    stale = [k for k in UNCOVERED if k in covered or k not in tree]
    check(not stale, f"UNCOVERED names {stale}, which are covered or gone")
    check(not [a for a in rows if a["verdict"] == "fail"], "a case fails")
    beyond = [a for a in rows if a["verdict"] == "pass" and not a["max_error"] <= a["bound"]]
    check(not beyond, f"error and bound are not of one kind: {beyond}")


def test_V_2_passes_of_a_small_model():
    """Steps are one kernel, prompts and batches take tiles; every kernel of passes is seen in one."""
    rows = [a for a in cases(0, "--kernels-only") if a["note"].startswith("in passes")]
    kernels = {a["kernel"] for a in rows}
    check({"i2s_gpu_layers", "i2s_gpu_gemm_tiles", "norm_tiles_gpu", "attention_gpu_prefill", "rope_append_gpu", "norm_quantize_gpu",
           "topk_gpu", "gather_gpu", "pack_gpu", "step_gpu", "rope_table_gpu"} <= kernels, sorted(kernels))
    first = [a for a in rows if a["kernel"] == "i2s_gpu_layers" and "first tokens" in a["note"]]
    check(len(first) == 1 and first[0]["max_error"] < 1e-5 and first[0]["bound"] < 0.01, first)


def test_V_2_older_devices_say_why_not():
    for cc, says in ((75, "needs compute capability 9.0, the device has compute capability 7.5"), (0, "needs compute capability 9.0, tensor cores, the device has compute capability 5.0")):
        rows = cases(0, "--kernels-only", cc=cc)
        layers = [a for a in rows if a["kernel"] == "i2s_gpu_layers"]
        check([(a["verdict"], a["note"]) for a in layers] == [("skip", says)], layers)
        check("fail" not in [a["verdict"] for a in rows], f"compute capability {cc}")


def test_V_2_a_wrong_kernel_is_named():
    """Each fault alone: the row it belongs to fails, by a case of its own wherever there is one."""
    for symbol, (kernel, alone) in FAULTS.items():
        failed = [a for a in cases(7, "--kernel", kernel, WRONG=symbol) if a["verdict"] == "fail"]
        check(failed and {a["kernel"] for a in failed} == {kernel}, f"{symbol}: {failed}")
        if alone:
            check([a for a in failed if not a["note"].startswith("in passes")], f"{symbol}: only in passes: {failed}")


def test_V_2_a_list_of_the_best_that_is_broken():
    """Passes see one that is empty, not only the cases alone."""
    failed = [a for s in ("merge", "join") for a in cases(7, "--kernel", "topk_gpu", WRONG=f"bnet_topk_{s}.none") if a["verdict"] == "fail"]
    passes = [a for a in failed if a["note"].startswith("in passes")]
    check(passes and all("best logits that came along, timeline 0: 0 instead of 8" in a["note"] for a in passes), failed)


def test_V_2_faults_cover_the_kernels_of_passes():
    """Every row that had no case once has a fault above, and every symbol of it that leaves results."""
    of_passes = ("layers", "linear_tiles", "norm_tiles", "prefill", "rope_append", "norm_quantize", "topk", "best", "gather", "pack", "step",
                 "rope_table", "attention")
    part = ("bnet_topk_part", "bnet_topk_rows")  # leave what another of the row takes
    general = ("bnet_attn_decode_f16", "bnet_attn_decode_f32", "bnet_attn_decode_i8", "bnet_ref_attention")  # single operations check these
    for kernel, symbols, op in rows_of_the_tree():
        for symbol in symbols.split() if op in of_passes else ():
            check(symbol in part + general or symbol in FAULTS, f"{kernel}: no fault of {symbol}")


def test_V_2_a_kernel_that_is_not_called_is_named():
    rows = cases(7, "--kernels-only", WITHOUT="bnet_decode_step 500")
    equal([a["note"] for a in rows if a["verdict"] == "fail"], ["the kernel was not called"], "failures")
    equal(verdicts(rows, "i2s_gpu_layers"), ["fail"], "i2s_gpu_layers")


def test_V_6_health_of_a_device():
    """The quick look finds a device whose products are wrong, and one that fails."""
    health = ("health", "-m", f"{SOURCE}/models/nano.gguf", "--device", "cuda")
    check("health: healthy" in expect(0, *health, env=with_gpu(90)).out, "a sound device")
    r = expect(7, *health, "--json", env=with_gpu(90, WRONG="bnet_w2_one"), says="health: blk.0.attn_q.weight: row 0 times a vector is")
    j = json.loads(r.out)
    equal([j[k] for k in ("healthy", "memory_ok", "compute_ok", "cache_ok")], [False, True, False, True], "what is wrong")
    check("compute: FAILED" in run(*health, env=with_gpu(90, WRONG="bnet_w2_one")).out, "text")
    expect(12, *health, env=with_gpu(90, FAIL="cuLaunchKernel 3 700"), says="cuda")


def test_one_kernel():
    for kernel in ("topk_gpu", "i2s_gpu_layers", "add_gpu"):
        equal({a["kernel"] for a in cases(0, "--kernel", kernel)}, {kernel}, "rows")
    expect(2, "validate", "--device", "cuda", "--kernel", "nothing_gpu", env=with_gpu(90), says="no 'nothing_gpu' in this build")
    for device, kernel, its in (("cpu", "i2s_gpu_layers", "cuda"), ("cpu", "topk_gpu", "cuda"), ("cuda", "add_f32.scalar", "cpu")):
        expect(2, "validate", "--device", device, "--kernel", kernel, env=with_gpu(90), says=f"'{kernel}' runs on {its}, not on {device}; choose that device")


def test_V_2_the_cpu_lists_what_is_the_gpus():
    r = run("validate", "--device", "cpu", "--quick", "--json", "--kernels-only", env=with_gpu(90))
    check(r.code == 0, f"exit {r.code}: {r.err[:300]}")
    rows = [a for a in json.loads(r.out)["accuracy"] if a["kernel"] in ("i2s_gpu_layers", "topk_gpu")]
    equal({(a["kernel"], a["verdict"]) for a in rows}, {("i2s_gpu_layers", "skip"), ("topk_gpu", "skip")}, "rows")
    check(all(a["note"] == "it runs on cuda, not on cpu" for a in rows), rows)


if __name__ == "__main__":
    main(globals())
