#!/usr/bin/env python3
"""What a program that uses the library relies on: the header alone compiles in C11 and C++17, the library exports what
the header declares and nothing else, keeps no writable data, calls nothing that is banned, and the installed tree works
with pkg-config, with find_package and on its own. The example of README.md is compiled and run."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["BITNET_SOURCE"]
BUILD = os.environ["BITNET_BUILD"]
HEADERS = ["bitnet.h", "bitnet_tools.h", "bitnet_kernel.h", "bitnet_check.h"]
# banned in the library, as the linker sees them
BANNED = {"exit", "_exit", "abort", "printf", "fprintf", "vprintf", "vfprintf", "puts", "putchar", "getenv", "strcpy",
          "strcat", "sprintf", "vsprintf", "atoi", "strtok", "gets", "rand", "srand", "__printf_chk", "__fprintf_chk",
          "__sprintf_chk", "__strcpy_chk", "__strcat_chk", "alloca"}


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=600,
                          stdin=subprocess.DEVNULL, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def uncommented(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def need_model():
    model = os.path.join(SOURCE, "models", "story.gguf")
    assert os.path.exists(model), "models/story.gguf is missing"
    return model


# ---- the header ----

def header_in(compiler, standard, suffix, work):
    for header in HEADERS + ["bitnet_extras.h"]:
        path = write(work, "alone" + suffix, f'#include "{header}"\n#include "{header}"\nint main() {{ return 0; }}\n'
                     .replace("main()", "main(void)" if suffix == ".c" else "main()"))
        run([compiler, f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
             "-I", f"{SOURCE}/include", "-I", f"{SOURCE}/extras", path])


def test_header_is_c11(work):
    header_in("cc", "c11", ".c", work)


def test_header_is_cxx17(work):
    header_in("c++", "c++17", ".cpp", work)


def test_options_begin_with_their_size(_):
    structs = re.findall(r"typedef struct (bitnet_\w+_options|bitnet_model_info) \{\s*([^;]*;)",
                         uncommented(read("include/bitnet.h")))
    assert len(structs) >= 6, structs
    for name, first in structs:
        assert first.split() == ["size_t", "struct_size;"], f"{name} begins with {first}"


def declared():
    text = "".join(uncommented(read(f"include/{h}")) for h in HEADERS)
    return set(re.findall(r"BITNET_API[^;]*?\b(bitnet_\w+)\s*\(", text))


# ---- the library ----

def test_exports_are_what_the_headers_declare(_):
    rows = run(["nm", "-D", "--defined-only", f"{BUILD}/libbitnet.so"]).splitlines()
    exported = {row.split()[-1].split("@")[0] for row in rows}
    assert all(name.startswith("bitnet_") for name in exported), sorted(exported)
    wanted = declared()
    assert len(wanted) > 30, sorted(wanted)
    assert exported == wanted, f"not declared: {sorted(exported - wanted)}; not exported: {sorted(wanted - exported)}"


def test_static_library_shows_only_our_names(_):
    rows = run(["nm", "--defined-only", "--extern-only", f"{BUILD}/libbitnet.a"]).splitlines()
    names = {row.split()[-1] for row in rows if len(row.split()) == 3}
    foreign = {name for name in names if not name.startswith(("bitnet_", "bnet_"))}
    assert names and not foreign, sorted(foreign)


def test_no_writable_data(_):
    rows = run(["objdump", "-t", f"{BUILD}/libbitnet.a"]).splitlines()
    bad = [row for row in rows if re.search(r" O \.(data|bss|tdata|tbss)(\.(?!rel\.ro)\S+)?\s", row) or " O *COM*" in row]
    assert any(" F .text" in row for row in rows)
    assert not bad, "\n".join(bad)


def test_no_banned_calls(_):
    used = {row.split()[-1] for row in run(["nm", "-u", f"{BUILD}/libbitnet.a"]).splitlines() if row.startswith(" ")}
    assert "memcpy" in used
    assert not used & BANNED, sorted(used & BANNED)


# ---- extras: a second library, on the public headers alone ----

def test_extras_export_what_their_header_declares(_):
    rows = run(["nm", "-D", "--defined-only", f"{BUILD}/libbitnet-extras.so"]).splitlines()
    exported = {row.split()[-1].split("@")[0] for row in rows}
    wanted = set(re.findall(r"BITNET_API[^;]*?\b(bitnet_\w+)\s*\(", uncommented(read("extras/bitnet_extras.h"))))
    assert exported == wanted, f"{sorted(exported ^ wanted)}"
    rows = run(["nm", "-D", "--undefined-only", f"{BUILD}/libbitnet-extras.so"]).splitlines()
    inside = {name for name in (row.split()[-1] for row in rows) if name.startswith(("bitnet_", "bnet_"))}
    assert inside <= declared(), f"not in the public headers: {sorted(inside - declared())}"


def test_extras_example(work):
    prefix = installed(work)
    lib = library_folder(prefix)
    env = {**os.environ, "PKG_CONFIG_PATH": f"{lib}/pkgconfig", "LD_LIBRARY_PATH": lib}
    flags = run(["pkg-config", "--cflags", "--libs", "bitnet-extras"], env=env).split()
    run(["cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", f"{SOURCE}/extras/example.c", "-o",
         f"{work}/extras-example"] + flags)
    text = run([f"{work}/extras-example"], env=env)
    assert text == "+1 -1 +1 +0 times 0.425: product 0.850\ntiles of 3 columns, rows 64 apart\n", text


# ---- README.md ----

def example():
    blocks = re.findall(r"```c\n(.*?)```", read("README.md"), flags=re.S)
    assert len(blocks) == 1, f"README.md has {len(blocks)} C examples, the test knows one"
    assert blocks[0].count("\n") <= 36, f"the example has grown to {blocks[0].count(chr(10))} lines"
    return blocks[0]


def expect_story(text):
    assert len(text.strip()) > 40 and " " in text.strip() and text.endswith("\n"), f"no story: {text!r}"


def test_readme_example(work):
    path = write(work, "example.c", example())
    program = os.path.join(work, "example")
    run(["cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", f"{SOURCE}/include", path, "-o", program,
         "-L", BUILD, "-lbitnet", f"-Wl,-rpath,{BUILD}"])
    expect_story(run([program, need_model()]))


def test_readme_names_files_that_exist(_):
    missing = []
    for name in re.findall(r"\]\(([^)#:]+)\)", read("README.md")):
        if not os.path.exists(os.path.join(SOURCE, name)):
            missing.append(name)
    assert not missing, missing


def test_version_is_one(_):
    version = re.search(r'#define BITNET_VERSION\s+"([^"]+)"', read("include/bitnet.h")).group(1)
    cmake = re.search(r"project\(bitnet VERSION (\S+)", read("CMakeLists.txt")).group(1)
    assert version == cmake, f"bitnet.h says {version}, CMakeLists.txt {cmake}"
    assert re.search(rf"^## {re.escape(version)}\b", read("CHANGELOG.md"), flags=re.M), "CHANGELOG.md lacks the version"


# ---- the installed tree ----

def installed(work):
    prefix = os.path.join(work, "prefix")
    if not os.path.exists(prefix):
        run(["cmake", "--install", BUILD, "--prefix", prefix])
    return prefix


def library_folder(prefix):
    for folder, _, names in os.walk(prefix):
        if "bitnet.pc" in names:
            return os.path.dirname(folder)
    raise AssertionError("bitnet.pc was not installed")


def test_pkg_config(work):
    prefix = installed(work)
    lib = library_folder(prefix)
    env = {**os.environ, "PKG_CONFIG_PATH": f"{lib}/pkgconfig"}
    flags = run(["pkg-config", "--cflags", "--libs", "bitnet"], env=env).split()
    path = write(work, "example.c", example())
    run(["cc", path, "-o", f"{work}/by-pkg-config"] + flags)
    expect_story(run([f"{work}/by-pkg-config", need_model()], env={**env, "LD_LIBRARY_PATH": lib}))
    flags = run(["pkg-config", "--static", "--cflags", "--libs", "bitnet"], env=env).split()
    flags = [f"{lib}/libbitnet.a" if flag == "-lbitnet" else flag for flag in flags]
    run(["cc", path, "-o", f"{work}/static"] + flags)
    expect_story(run([f"{work}/static", need_model()]))


def test_find_package(work):
    prefix = installed(work)
    project = os.path.join(work, "project")
    os.makedirs(project, exist_ok=True)
    write(project, "example.c", example())
    write(project, "CMakeLists.txt", "cmake_minimum_required(VERSION 3.16)\nproject(example C)\n"
          "find_package(bitnet 0.1 REQUIRED)\n"
          "add_executable(shared example.c)\ntarget_link_libraries(shared PRIVATE bitnet::bitnet)\n"
          "add_executable(archive example.c)\ntarget_link_libraries(archive PRIVATE bitnet::static)\n")
    run(["cmake", "-S", project, "-B", f"{project}/build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"])
    run(["cmake", "--build", f"{project}/build"])
    for name in ("shared", "archive"):
        expect_story(run([f"{project}/build/{name}", need_model()]))


def test_installed_command_finds_its_model(work):
    prefix = installed(work)
    need_model()
    moved = os.path.join(work, "moved")
    shutil.copytree(prefix, moved)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BITNET")}
    expect_story(run([f"{moved}/bin/bitnet", "run", "--seed", "1", "Once upon a time"], cwd="/", env=environment))
    for name in ("share/man/man1/bitnet.1", "share/bash-completion/completions/bitnet",
                 "share/zsh/site-functions/_bitnet", "share/fish/vendor_completions.d/bitnet.fish"):
        assert os.path.getsize(os.path.join(moved, name)) > 200, name


def main():
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        for name, function in tests:
            try:
                function(work)
                print(f"ok {name}")
            except Exception as e:  # a test that breaks has failed too
                failed += 1
                print(f"FAILED {name}: {e}")
    print(f"{len(tests) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
