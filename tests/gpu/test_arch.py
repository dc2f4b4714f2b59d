#!/usr/bin/env python3
"""Which chips the CUDA kernels are compiled for is said when a build is configured (DET-18): CUDA_ARCH=sm_80. Nothing else is in
the images, the command lists it, and a chip that none of them serves is refused by name, with the remedy."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import BITNET, Skip, check, equal, expect, fails, main, model, temp  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("BITNET_BUILD", os.path.dirname(BITNET))
EMULATED = os.path.join(BUILD, "emulated")
ASK = ("run", "-m", model("nano"), "-p", "Once upon a time", "--greedy", "-n", "12")


def with_gpu(cc, **more):
    if not os.path.exists(os.path.join(EMULATED, "libcuda.so.1")):
        raise Skip("the CUDA backend is not compiled in")
    return {"LD_LIBRARY_PATH": EMULATED, "BITNET_EMULATED_CC": str(cc), **{"BITNET_EMULATED_" + k: str(v) for k, v in more.items()}}


def built_for():
    with open(os.path.join(BUILD, "cuda", "archs.inc"), encoding="utf-8") as f:
        return re.search('"(.*)"', f.read()).group(1)


def configure(name, arch):
    with_gpu(0)
    folder = temp(name)
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        nvcc = re.search("BITNET_NVCC:FILEPATH=(.*)", f.read()).group(1)
    r = subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DBITNET_TESTS=OFF", "-DBITNET_CUDA=ON", f"-DCUDA_ARCH={arch}",
                        f"-DBITNET_NVCC={nvcc}", f"-DBITNET_CUDA_STORE={folder}/store"], capture_output=True, text=True, check=False)
    return folder, nvcc, r


def test_DET_18_a_build_for_one_chip():
    folder, nvcc, r = configure("sm_80", "sm_80")
    check(r.returncode == 0 and "CUDA kernels for sm_80\n" in r.stdout, r.stdout[-500:] + r.stderr[-500:])
    with open(os.path.join(folder, "build.ninja"), encoding="utf-8") as f:
        equal(set(re.findall(r",code=(\w+)", f.read())), {"sm_80"}, "code")
    with open(os.path.join(folder, "cuda", "images.inc"), encoding="utf-8") as f:
        images = f.read()
    check("IMAGE(w2_gemv," in images and "wgmma" not in images and "_sm90" not in images, images)
    dump = os.path.join(os.path.dirname(nvcc), "cuobjdump")
    if not os.path.exists(dump) or not shutil.which("ninja"):
        return
    subprocess.run(["ninja", "-C", folder, "cuda/embed.fatbin"], check=True, stdout=subprocess.DEVNULL)
    out = subprocess.run([dump, "--list-elf", "--list-ptx", os.path.join(folder, "cuda", "embed.fatbin")], capture_output=True,
                         text=True, check=False).stdout
    equal(re.findall(r"sm_\d+a?", out), ["sm_80"], out)


def test_DET_18_lists_and_mistakes():
    _, _, r = configure("several", "75, sm_90,compute_80")
    check("CUDA kernels for sm_75 sm_90a compute_80\n" in r.stdout, r.stdout[-500:] + r.stderr[-500:])
    for wrong in ("sm_12", "ampere", "sm_80,gfx90a"):
        _, _, r = configure("wrong", wrong)
        check(r.returncode != 0 and re.search(r"is none of what \S+nvcc\s+compiles\s+for:", r.stderr), r.stderr[-500:])


PROJECT = """cmake_minimum_required(VERSION 3.16)
project(small NONE)
set(CUDA_ARCH "$ENV{CUDA_ARCH}" CACHE STRING "")
set(BITNET_CUDA AUTO CACHE STRING "")
if(BITNET_CUDA STREQUAL "OFF")
  set(without "without")
endif()
if(CUDA_ARCH STREQUAL "sm_999")
  message(FATAL_ERROR "CUDA_ARCH=sm_999: no such chip")
endif()
add_custom_command(OUTPUT bitnet COMMAND printf "%s" "for ${CUDA_ARCH}.${without}" > bitnet COMMAND chmod +x bitnet VERBATIM)
add_custom_target(bitnet_cli DEPENDS bitnet)
"""
PRESETS = """{"version": 3, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}"""


def small_checkout():
    """A checkout with a project that is built in no time, and the script that builds it, for one CUDA_ARCH."""
    if not shutil.which("cmake") or not shutil.which("ninja"):
        raise Skip("cmake or ninja is missing")
    root = temp("checkout")
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("tools", "src", "cli", "include", "cmake"):
        os.makedirs(os.path.join(root, folder))
    for name, text in (("CMakeLists.txt", PROJECT), ("CMakePresets.json", PRESETS)):
        with open(os.path.join(root, name), "w", encoding="utf-8") as f:
            f.write(text)
    for name in ("build", "progress"):
        shutil.copy(os.path.join(ROOT, "tools", name), os.path.join(root, "tools"))

    def build(arch, gpu=""):
        r = subprocess.run([os.path.join(root, "tools", "build")], capture_output=True, text=True, check=False,
                           env={**os.environ, "CUDA_ARCH": arch, "GPU": gpu})
        if r.returncode != 0:
            return r.stderr
        with open(os.path.join(root, "build", "release", "bitnet"), encoding="utf-8") as f:
            return f.read()
    return build


def test_DET_18_a_mistake_is_not_kept():
    """What cannot be configured is an error of the call that asks for it, not of the next, which goes on with what was there."""
    build = small_checkout()
    for kept in ("", "sm_80"):
        check("no such chip" in build("sm_999"), "a mistake")
        equal(build(""), f"for {kept}.", f"after the mistake, {kept or 'nothing'} before")
        equal(build("sm_80"), "for sm_80.", "another")
    check("no such chip" in build("sm_999"), "a mistake")
    equal(build("default"), "for .", "all again")


def test_BE_12_make_gpu():
    """make GPU=0 leaves the backends away until another is asked for; what is no such value is refused."""
    build = small_checkout()
    equal(build("", "0"), "for .without", "GPU=0 at first")
    equal(build(""), "for .without", "kept")
    equal(build("sm_80", "1"), "for sm_80.", "GPU=1")
    equal(build("", "0"), "for sm_80.without", "GPU=0")
    equal(build("", "auto"), "for sm_80.", "GPU=auto")
    check("GPU=2: use 0" in build("", "2"), "a mistake")
    with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as f:
        check(re.search(r"(?m)^export .*\bGPU\b", f.read()), "make hands it on")


def test_DET_18_the_command_says_which():
    env = with_gpu(61)
    check(f"compiled yes ({built_for()}), available yes" in expect(0, "devices", env=env).out, "devices")
    check(f"cuda: compiled yes ({built_for()}), available yes" in expect(0, "info", env=env).out, "info")
    equal(json.loads(expect(0, "devices", "--json", env=env).out)["devices"][0]["architectures"], built_for(), "JSON")


def test_DET_16_a_chip_without_kernels():
    """One answer of all commands for a card that no kernels are for, with both minima and no advice that cannot work: the toolkit begins
    at 7.5, so no CUDA_ARCH helps. (The driver that is emulated would load the images.)"""
    env = with_gpu(61)
    says = (rf"cuda: device 0 \(emulated device\) has compute capability 6\.1, which this build does not serve: it has kernels for {built_for()} "
            r"\(compute capability 7\.5 and later\), compiled with CUDA 1\d\.\d, which begins at 7\.5; the driver must serve CUDA 1\d\.0 or "
            r"later; use --device cpu")
    r = expect(12, "preflight", "--require", env=env)
    check(re.search("no GPU to compute on", r.out) and re.search(says, r.out) and ": ok" not in r.out, r.out)
    for device in ("cuda", "cuda:0", "gpu"):
        fails(11, *ASK, "--device", device, env=env, says=says)
    fails(11, *ASK, "--device", "auto", "--strict", env=env, says=says)
    fails(11, "validate", "--device", "cuda", "--kernels-only", env=env, says=says)
    fails(11, "bench", "--synthetic", "nano", "--tests", "tg1", "--device", "cuda", env=env, says=says)
    r = expect(0, *ASK, "--device", "auto", env=env, says=says + ".*selected=cpu")
    equal(r.out, expect(0, *ASK, "--device", "cpu").out, "text")
    text = expect(0, "devices", env=env).out
    check(re.search("Usable: no: " + says, text), text)
    check("cuda: compiled yes" in expect(0, "info", env=env).out and "available yes, usable no" in expect(0, "info", env=env).out, "info")
    device = json.loads(expect(0, "devices", "--json", env=env).out)["devices"][0]
    equal((device["usable"], device["gpus"][0]["usable"], device["gpus"][0]["error"]), (False, False, "NotCompiled"), "JSON")
    equal((device["minimum"]["compute_capability"], device["minimum"]["toolkit_compute_capability"]), ([7, 5], [7, 5]), "minima")
    check(not re.search("NotCompiled|CUDA_ARCH", text + r.err), "words for people")


def test_DET_16_an_old_driver():
    """What serves an older CUDA than the build needs is refused before anything is opened, by preflight too."""
    env = with_gpu(90, VERSION=12040)
    says = r"the driver serves CUDA 12\.4, but this build needs one that serves CUDA 13\.0 or later \(and a device of compute capability 7\.5"
    check(re.search(says, expect(12, "preflight", "--require", env=env).out), "preflight")
    fails(12, *ASK, "--device", "cuda", env=env, says=says)
    expect(0, "preflight", "--require", env=with_gpu(90))


def test_BE_9_the_batches_told_are_those_planned():
    """What devices prints and what the engine says when it opens the device."""
    for memory, batch in ((4 * 10 ** 9, 8), (12 * 10 ** 9, 32), (24 * 10 ** 9, 64)):
        env = with_gpu(90, MEMORY=memory)
        gpu = json.loads(expect(0, "devices", "--json", env=env).out)["devices"][0]["gpus"][0]
        equal((gpu["max_batch"], gpu["max_pass_tokens"]), (batch, 16 * batch), "devices")
        expect(0, *ASK, "--device", "cuda", "-v", env=env,
               says=f"recorded steps of up to {batch} timelines, passes of up to {16 * batch} tokens")


def test_DET_18_hidden_devices_are_told():
    """At the usual level, where auto would have taken the GPU; nothing is said where it is asked for by name or not wanted."""
    for value, says in (("", "CUDA_VISIBLE_DEVICES is set and empty: every CUDA device is hidden.*selected=cpu"),
                        ("7", "CUDA_VISIBLE_DEVICES=7 leaves no CUDA device.*selected=cpu")):
        env = {**with_gpu(90), "CUDA_VISIBLE_DEVICES": value}
        if value:
            env["BITNET_EMULATED_FAIL"] = "cuInit -1 100"
        expect(0, *ASK, env=env, says="warning: device: " + says)
        check("hidden" not in expect(0, *ASK, "--device", "cpu", env=env).err, "cpu was asked for")
        check("VISIBLE" not in expect(0, "tokenize", "-m", model("nano"), "x", env=env).err, "tokenize computes on nothing")
    expect(0, *ASK, env={**with_gpu(90), "BITNET_GPU_FAKE": "none"}, says="warning: device: BITNET_GPU_FAKE=none: real GPUs are hidden")


HOPPER = r"CHIP,.*, 9, 0, [01], "  # a row whose kernel needs compute capability 9.0


def hoppers():
    """Symbols of kernels that Hopper alone runs: whole rows, and faster forms in rows of earlier chips."""
    with open(os.path.join(ROOT, "src", "backend", "cuda", "kernels.inc"), encoding="utf-8") as f:
        rows = [(line, re.search('"([^"]*)"', line).group(1).split()) for line in f if line.startswith("KERNEL(")]
    return ",".join(s for line, names in rows for s in names if re.search(HOPPER, line) or re.search("wgmma|_h128", s))


def test_DET_18_later_chips_run_what_earlier_ones_do():
    """A chip after Hopper has PTX, and none of Hopper's own kernels: they are not chosen, nothing is asked of them."""
    path = temp("later.json")
    env = with_gpu(100, FAIL="cuModuleLoadData 1 209", WITHOUT=f"{hoppers()} 500")
    r = expect(0, *ASK, "--device", "cuda", "--receipt", path, env=env)
    equal(r.out, expect(0, *ASK, "--device", "cpu").out, "text")
    with open(path, encoding="utf-8") as f:
        receipt = json.load(f)
    check("compute capability 10.0" in receipt["environment"]["GPU_DEVICE"], receipt["environment"])
    check("i2s_gpu_gemv" in receipt["kernels"] and not any("wgmma" in k or "tiles" in k for k in receipt["kernels"]), receipt["kernels"])
    long = " ".join(["The little dog saw a big red ball."] * 12)
    args = ("run", "-m", model("nano"), "--greedy", "-n", "4", "-p", long, "--device")
    equal(expect(0, *args, "cuda", env=env).out, expect(0, *args, "cpu").out, "a long prompt")


def test_K_23_every_kernel_fits_the_shared_memory_of_its_chip():
    """Blocks of 7.5, 8.0 and 8.6 have 64, 163 and 99 KiB: what asks for more is refused by the driver, so nothing may."""
    for cc in (75, 80, 86):
        expect(0, "validate", "--device", "cuda", "--quick", "--kernels-only", env=with_gpu(cc, WITHOUT=f"{hoppers()} 500"))


def test_DET_18_later_chips_are_validated():
    """What a device was not loaded with is no failure of it."""
    with open(os.path.join(ROOT, "src", "backend", "cuda", "kernels.inc"), encoding="utf-8") as f:
        own = set(re.findall(r"KERNEL\((\w+),.*" + HOPPER, f.read()))
    env = with_gpu(100, FAIL="cuModuleLoadData 1 209", WITHOUT=f"{hoppers()} 500")
    d = json.loads(expect(0, "validate", "--device", "cuda", "--quick", "--kernels-only", "--json", env=env).out)
    equal({(a["kernel"], a["verdict"]) for a in d["accuracy"] if a["kernel"] in own}, {(k, "skip") for k in own}, "validate")


if __name__ == "__main__":
    main(globals())
