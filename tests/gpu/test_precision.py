#!/usr/bin/env python3
"""--precision on an emulated GPU (emulated_cuda.c): what is taken, what is said, what results and receipts tell, and that
the float model runs whole in every precision."""
import array
import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_emulated import model, need, with_gpu  # noqa: E402
from harness import check, equal, expect, fails, main, run, shared, temp  # noqa: E402

LLAMA = {}


def llama():
    """The float model of the shared data, converted once."""
    need()
    if not LLAMA:
        LLAMA["path"] = temp("llama2c.gguf")
        expect(0, "convert", shared("third-party/stories260K.bin"), "--tokenizer", shared("third-party/tok512.bin"), "--type", "f32", "-o",
               LLAMA["path"])
    return LLAMA["path"]


def ask(n=60):
    return ("run", "-m", llama(), "-p", "Once upon a time, there was a little girl named Lily. She", "--greedy", "-n", str(n), "--kv", "f32")


def on(precision, cc=90, *more, **env):
    return expect(0, *ask(), "--device", "cuda", "--precision", precision, *more, env=with_gpu(cc, **env))


def test_K_18_float_model_runs_whole_in_every_precision():
    """fp32 is the golden text; the halves' own rounding moves no choice of this text on this model."""
    want = expect(0, *ask(), "--device", "cpu").out
    for precision, cc, ran, kernels in (("fp32", 90, "fp32", "gemv_f32_gpu"), ("fp16", 90, "fp16", "matmul_fp16_gpu"),
                                        ("bf16", 90, "bf16", "matmul_bf16_gpu"), ("auto", 90, "bf16", "matmul_bf16_gpu"),
                                        ("auto", 75, "fp16", "matmul_fp16_gpu")):
        r = on(precision, cc, "--json")
        j = json.loads(r.out)
        equal(j["text"], want.rstrip("\n"), f"{precision} on {cc}")
        equal(j["stats"]["precision"], ran, f"{precision} on {cc}")
        used = [k["id"] if isinstance(k, dict) else k for k in j["kernels"]]
        check(kernels in used, used)
        check(not any(k.startswith("gemv_f32") for k in used) or ran == "fp32", f"floats beside halves: {used}")


def logits(precision):
    """One row of the vocabulary per position of a prompt."""
    path = temp("logits-" + precision)
    with open(shared("third-party/stories260K.greedy-200.txt"), encoding="utf-8") as f:
        prompt = f.read()[:500]
    expect(0, "run", "-m", llama(), "-p", prompt, "--greedy", "-n", "1", "--kv", "f32", "--device", "cuda", "--precision",
           precision, "--dump-logits", path, env=with_gpu(90))
    values = array.array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    return [values[i:i + 512] for i in range(0, len(values), 512)]


def test_K_18_logits_of_halves_point_where_floats_do():
    """Cosine and, where the margin allows, the choice of every position: 0.9999 and 0.05 in fp16, 0.998 and 0.5 in bf16."""
    want = logits("fp32")
    for precision, cosine, margin in (("fp16", 0.9999, 0.05), ("bf16", 0.998, 0.5)):
        for at, (a, b) in enumerate(zip(logits(precision), want)):
            dot = sum(x * y for x, y in zip(a, b))
            size = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
            check(dot / size >= cosine, f"{precision}: position {at}: cosine {dot / size}")
            first, second = sorted(b)[-1:-3:-1]
            check(first - second < margin or a.index(max(a)) == b.index(first), f"{precision}: position {at}: another choice")


def test_ST_2_ten_fields_of_a_run():
    for precision in ("fp32", "fp16", "bf16"):
        j = json.loads(on(precision, 90, "--json").out)["stats"]["mixed_precision"]
        equal(len(j), 10, "fields")
        for field in ("ops", "memory_allocated", "memory_peak", "h2d", "d2h", "h2d_bytes", "d2h_bytes"):
            check(j[field] > 0, f"{precision}: {field} is {j[field]}")
        check(j["memory_peak"] >= j["memory_allocated"], j)
        for p in ("fp16", "bf16"):
            check((j[p + "_ms"] > 0) == (p == precision), f"{precision}: {p}_ms is {j[p + '_ms']}")
        check(j["fp32_ms"] > 0, "norms, attention and the rest are floats always")


def test_receipt_says_what_ran():
    for precision, ran in (("auto", "bf16"), ("fp16", "fp16"), ("fp32", "fp32")):
        path = temp("receipt.json")
        on(precision, 90, "--receipt", path)
        with open(path, encoding="utf-8") as f:
            receipt = json.load(f)
        equal(receipt["environment"]["precision"], ran, "precision")
        check(("matmul_" + ran + "_gpu" in receipt["kernels"]) == (ran != "fp32"), receipt["kernels"])
        expect(0, "receipt", "verify", path)


def test_K_20_unsupported_hardware():
    says = r"precision bf16: float matrices are multiplied in fp32: device 0 \(emulated device\) of compute capability 7.5"
    r = on("bf16", 75)
    check(re.search(says, r.err), r.err)
    equal(r.out, on("fp32", 75).out, "text")
    fails(12, *ask(), "--device", "cuda", "--precision", "bf16", "--strict", env=with_gpu(75),
          says="strict mode allows no other precision")


def test_K_20_kernel_that_is_missing():
    env = with_gpu(90, WITHOUT="bnet_matmul_bf16_nt 218")
    fails(12, *ask(), "--device", "cuda", "--precision", "bf16", env=env,
          says="precision bf16: kernel matmul_bf16_gpu is not in the images .* use --precision fp32")
    r = expect(0, *ask(), "--device", "cuda", "--precision", "auto", "-v", env=env)
    check("multiplied in fp16" in r.err, r.err)


def test_K_20_no_memory():
    """Whichever allocation fails: an error by name, or under auto the CPU."""
    for n in (1, 6, 12):
        env = with_gpu(90, FAIL=f"cuMemAlloc -{n} 2")
        fails(6, *ask(), "--device", "cuda", "--precision", "fp16", env=env, says="memory|do not fit")
        r = expect(0, *ask(), "--device", "auto", "--precision", "fp16", env=env)
        check("selected=cpu" in r.err and "fp32 is used" in r.err, r.err)


def test_K_20_launch_that_fails():
    want = expect(0, *ask(), "--device", "cpu").out
    env = with_gpu(90, FAIL="cuLaunchKernel 400 719")
    r = expect(0, *ask(), "--device", "auto", "--precision", "fp16", env=env)
    check("continues on the CPU" in r.err and "which resets it" in r.err, r.err)
    equal(r.out, want, "text")


def test_K_20_wrong_results():
    for kernel, precision, ran in (("bnet_wmma_matmul_f16", "fp16", "fp32"), ("bnet_matmul_f16_nt", "fp16", "fp32"),
                                   ("bnet_matmul_bf16_nt", "auto", "fp16")):
        r = on(precision, 90, "--json", WRONG=kernel)
        check("not what the reference says" in r.err, r.err)
        equal(json.loads(r.out)["stats"]["precision"], ran, kernel)


def test_a_precision_without_effect_is_told():
    r = expect(0, *ask(), "--device", "cpu", "--precision", "fp16", env={})
    check("precision fp16: the CPU multiplies float matrices in fp32 only: fp32 is used" in r.err, r.err)
    r = expect(0, *ask(), "--device", "cpu", "--precision", "auto", env={})
    check("precision" not in r.err, r.err)
    fails(12, *ask(), "--device", "cpu", "--precision", "fp16", "--strict", env={}, says="the CPU multiplies float matrices")
    fails(2, *ask(), "--precision", "fp8", says="fp32|fp16|bf16|auto")


def test_specialising_the_cpu_is_told():
    r = expect(0, *ask(), "--device", "cpu", "--gpu-specialise", env={})
    check("gpu-specialise: the CPU's kernels are those of the build: nothing is compiled" in r.err, r.err)
    r = expect(0, *ask(), "--device", "cpu", env={})
    check("gpu-specialise" not in r.err, r.err)
    fails(12, *ask(), "--device", "cpu", "--gpu-specialise", "--strict", env={}, says="nothing is compiled; omit it")


def validated(code, *args, **env):
    r = run("validate", "--device", "cuda", "--quick", "--json", *args, env=with_gpu(90, **env))
    check(r.code == code, f"exit {r.code}: {r.err[:300]}")
    rows = {}
    for a in json.loads(r.out)["accuracy"]:
        rows.setdefault(a["kernel"], []).append(a["verdict"])
    return rows


def test_V_2_validate_checks_single_operations():
    rows = validated(0)
    for kernel in ("matmul_fp16_gpu", "matmul_bf16_gpu", "wmma_i2s_gpu", "matmul_i2s_gpu", "matmul_i2s_gpu_few", "wmma_f16_gpu",
                   "matmul_nn_f32_gpu", "matmul_nn_bf16_gpu", "gemv_f16_f16_gpu", "gemv_bf16_bf16_gpu", "convert_f32_f16_gpu", "convert_f32_bf16_gpu",
                   "convert_f16_f32_gpu", "convert_bf16_f32_gpu", "quantize_i2s_gpu", "quantize_tl1_gpu", "quantize_tl2_gpu",
                   "qk256_gpu_gemv", "add_gpu", "mul_gpu", "relu2_gpu", "silu_gpu", "glu_relu2_gpu", "glu_silu_gpu", "softmax_gpu",
                   "argmax_gpu"):
        check("pass" in rows[kernel] and "fail" not in rows[kernel], f"{kernel}: {rows[kernel]}")
    for code, kernel in (7, "matmul_nn_bf16_gpu"), (0, "matmul_nn_bf16_gpu_ref"):
        rows = validated(code, "--kernel", kernel, WRONG="bnet_matmul_bf16_nn")
        equal("fail" in rows[kernel], code == 7, f"{kernel}: {rows[kernel]}")
    rows = validated(7, "--kernel", "softmax_gpu", WRONG="bnet_softmax")  # not-a-number as the first of the values
    check("pass" not in rows["softmax_gpu"] and "fail" in rows["softmax_gpu"], rows["softmax_gpu"])


def test_ternary_models_keep_their_integers():
    """Only the head and the embedding of the nano model are floats."""
    want = expect(0, "run", "-m", model("nano"), "-p", "Once", "--greedy", "-n", "30", "--device", "cpu", "--json").out
    r = expect(0, "run", "-m", model("nano"), "-p", "Once", "--greedy", "-n", "30", "--device", "cuda", "--precision", "fp16",
               "--json", env=with_gpu(90))
    j, c = json.loads(r.out), json.loads(want)
    used = [k["id"] if isinstance(k, dict) else k for k in j["kernels"]]
    check("i2s_gpu_gemv" in used, used)
    equal(j["text"], c["text"], "text")


if __name__ == "__main__":
    main(globals())
