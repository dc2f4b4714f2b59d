#!/usr/bin/env python3
"""Breaks every rule of tools/lint once, in a tree made for it, and looks whether exactly that breach is named. Rows that
expect nothing are the look-alikes a careless pattern would take for a breach. And this tree keeps the rules."""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OPEN = "/* what this file hides */\n"
PY = '"""what this script is for"""\n'
LONG = OPEN + "int f(int a)\n{\n" + "    a++;\n" * 60 + "    return a;\n}\n"

# name, path, text, expected (line, rule) pairs
ROWS = [
    ("a name that nothing defines", "tools/a.py", PY + "def f(x):\n    def g():\n        return x + nothing\n    return g\n", [(4, "name")]),
    ("a name that nothing defines, outside functions", "tools/a", "#!/usr/bin/env python3\n" + PY + "print(nothing)\n", [(3, "name")]),
    ("a script that is no Python", "tools/a.py", PY + "def f(:\n", [(2, "name")]),
    ("names of all kinds", "tools/a.py", PY + "import os.path as p\nfrom sys import argv\n\n\nclass A(list):\n    n = 1\n    m = n\n\n\n"
     "def f(a, *b, c=argv, **d):\n    global late\n    late = [x for x in b if (y := x)]\n    return lambda z: A(p, a, c, d, z, y, __file__)\n"
     "\n\ntry:\n    print(late)\nexcept OSError as e:\n    print(e, len(f.__name__))\n", []),
    ("names of a shell", "tools/a.sh", "#!/bin/sh\n# what it does\necho $nothing\n", []),
    ("banned call", "src/text/a.c", OPEN + "void f(void) { exit(1); }\n", [(2, "banned-call")]),
    ("printf", "src/text/a.c", OPEN + 'void f(void) { printf ("x"); }\n', [(2, "banned-call")]),
    ("getenv", "src/base/a.c", OPEN + "char *f(void) { return getenv(\"A\"); }\n", [(2, "banned-call")]),
    ("snprintf is fine", "src/text/a.c", OPEN + 'void f(char *b) { snprintf(b, 2, "x"); }\n', []),
    ("a banned word in a comment", "src/text/a.c", OPEN + "/* never exit(1) or free(p) */\n", []),
    ("a banned word in a string", "src/text/a.c", OPEN + 'const char *bnet_s(void) { return "exit(1) \\" free(p)"; }\n', []),
    ("a longer name", "src/text/a.c", OPEN + "void f(void *p) { bnet_free(p); }\n", []),
    ("a member", "src/text/a.c", OPEN + "void f(struct ops *o) { o->free(o); }\n", []),
    ("malloc outside base", "src/engine/a.c", OPEN + "void *f(void) { return malloc(3); }\n", [(2, "banned-call")]),
    ("free outside base", "src/engine/a.c", OPEN + "\nvoid f(void *p) { free(p); }\n", [(3, "banned-call")]),
    ("malloc in base", "src/base/a.c", OPEN + "void *f(void) { return malloc(3); }\n", []),
    ("the command may print", "cli/a.c", OPEN + 'void f(void) { printf("x"); exit(free_it(malloc(3))); }\n', []),
    ("static variable", "src/base/a.c", OPEN + "static int count;\n", [(2, "static")]),
    ("static with value", "src/base/a.c", OPEN + "static int count = 3;\n", [(2, "static")]),
    ("variable that others can name", "src/base/a.c", OPEN + "int count;\n", [(2, "static")]),
    ("variable of each thread", "src/base/a.c", OPEN + "_Thread_local struct state here = {0};\n", [(2, "static")]),
    ("variables in an array", "src/base/a.c", OPEN + "unsigned long counts[3][4];\n", [(2, "static")]),
    ("declared elsewhere", "src/base/a.c", OPEN + "extern const int table[];\nstruct state;\ntypedef int number;\n", []),
    ("constant that others can name", "src/base/a.c", OPEN + "const int table[] = {1};\nconst char *const name = NULL;\n", []),
    ("function of two lines", "src/base/a.c", OPEN + "unsigned long\nf(int n)\n{\n    return (unsigned long)n;\n}\n", []),
    ("static in a function", "src/base/a.c", OPEN + "int f(void)\n{\n    static int n;\n    return n++;\n}\n",
     [(4, "static")]),
    ("pointers that can change", "src/base/a.c", OPEN + 'static const char *names[] = {"a"};\n', [(2, "static")]),
    ("static function pointer", "src/base/a.c", OPEN + "static void (*hook)(int);\n", [(2, "static")]),
    ("constant table", "src/base/a.c", OPEN + 'static const char *const names[] = {"a"};\n', []),
    ("static function", "src/base/a.c", OPEN + "static int f(int *p)\n{\n    return *p;\n}\n", []),
    ("static in array bounds", "src/base/a.c", OPEN + "static inline void f(int n)\n{\n    (void)n;\n}\n", []),
    ("include upward", "src/format/a.c", OPEN + '#include "text/t.h"\n', [(2, "include")]),
    ("include sideways", "src/convert/a.c", OPEN + '#include "engine/e.h"\n', [(2, "include")]),
    ("the engine looks at what stands on it", "src/engine/a.c", OPEN + '#include "check/c.h"\n', [(2, "include")]),
    ("a room looks at another", "src/receipt/a.c", OPEN + '#include "check/c.h"\n', [(2, "include")]),
    ("a room stands on the engine", "src/check/a.c", OPEN + '#include "engine/e.h"\n', []),
    ("a public header inside", "src/format/a.c", OPEN + '#include "bitnet.h"\n', []),
    ("include of an inner header", "src/model/a.c", OPEN + '#include "ops/backend.h"\n', [(2, "include")]),
    ("a backend looks at another", "src/backend/cpu/a.c", OPEN + '#include "backend/gpu/g.h"\n', [(2, "include")]),
    ("the host of GPUs looks at a driver", "src/backend/gpu/a.c", OPEN + '#include "backend/cuda/u.h"\n', [(2, "include")]),
    ("the host of GPUs looks at the CPU", "src/backend/gpu/a.c", OPEN + '#include "backend/cpu/p.h"\n', [(2, "include")]),
    ("a group looks at a driver", "src/backend/group/a.c", OPEN + '#include "backend/cuda/u.h"\n', [(2, "include")]),
    ("a driver looks at another", "src/backend/host/a.c", OPEN + '#include "backend/cuda/u.h"\n', [(2, "include")]),
    ("a driver stands on the host of GPUs", "src/backend/cuda/a.c", OPEN + '#include "backend/gpu/g.h"\n', []),
    ("a backend looks up", "src/backend/cpu/a.c", OPEN + '#include "ops/ops.h"\n', [(2, "include")]),
    ("a backend has the contract", "src/backend/cpu/a.c", OPEN + '#include "ops/backend.h"\n', []),
    ("a backend that is not in the table", "src/backend/new/a.c", OPEN + '#include "base/b.h"\n', [(2, "include")]),
    ("the scheduler knows HTTP", "server/jobs/a.c", OPEN + '#include "http/h.h"\n', [(2, "include")]),
    ("an API looks at another", "server/ollama/a.c", OPEN + '#include "openai/o.h"\n', [(2, "include")]),
    ("an API asks", "server/ollama/a.c", OPEN + '#include "ask/s.h"\n', []),
    ("an API knows the library of HTTP", "server/ollama/a.c", OPEN + "#include <microhttpd.h>\n", [(2, "include")]),
    ("HTTP knows its library", "server/http/a.c", OPEN + "#include <microhttpd.h>\n", []),
    ("a kernel of a device looks aside", "src/backend/cuda/k/a.cu", OPEN + '#include "backend/cpu/p.h"\n', [(2, "include")]),
    ("a header of a device looks aside", "src/backend/cuda/k/a.cuh", OPEN + '#include "backend/cpu/p.h"\n', [(2, "include")]),
    ("a kernel of a device may be wide", "src/backend/cuda/a.cu", OPEN + "/* " + "x" * 95 + " */\n", []),
    ("a tab in a kernel", "src/backend/cuda/a.cu", OPEN + "int\tx(void);\n", [(2, "tab")]),
    ("no opening comment in a kernel", "src/backend/cuda/a.cu", "int x(void);\n", [(1, "opening")]),
    ("a table called from above", "src/model/a.c", OPEN + "void f(struct b *be) { be->v->add(be); }\n", [(2, "table")]),
    ("a table taken from above", "src/engine/a.c", OPEN + "void *f(struct e *e) { return (void *)e->backend->pass; }\n", [(2, "table")]),
    ("a table called by a room", "src/check/a.c", OPEN + "void f(struct t *t) { t->one.be->inspect->mark(0); }\n", [(2, "table")]),
    ("a table called by ops", "src/ops/a.c", OPEN + "void f(struct b *be) { be->v->add(be); }\n", []),
    ("a table called by a backend", "src/backend/group/a.c", OPEN + "void f(struct b *be) { be->v->add(be); }\n", []),
    ("a member called v", "src/model/a.c", OPEN + "int f(struct l *y) { return y->v.n + y->v[0]; }\n", []),
    ("a key compared by name", "src/check/a.c", OPEN + 'bool f(struct k *k)\n{\n    return strcmp(k->op, "linear") == 0;\n}\n', [(4, "key")]),
    ("a format compared by name", "src/backend/cpu/a.c", OPEN + 'bool f(const char *format) { return strncmp(format, "i2s", 3); }\n', [(2, "key")]),
    ("a part of a name", "src/ops/a.c", OPEN + 'bool f(struct q q) { return strstr(q.dtype, "f16") != 0; }\n', [(2, "key")]),
    ("keys compared as values", "src/check/a.c", OPEN + 'bool f(struct k *k) { return k->op == 1 && strcmp(k->id, "a") == 0 && k->format == 2; }\n', []),
    ("a name looked up", "src/tools/a.c", OPEN + 'bool f(struct q *q) { return bnet_op_find(q->op) == 1; }\n', []),
    ("include downward", "src/text/a.c", OPEN + '#include "base/b.h"\n', []),
    ("include from beside", "src/text/a.c", OPEN + '#include "t.h"\n', []),
    ("the one header of ops", "src/model/a.c", OPEN + '#include "ops/ops.h"\n', []),
    ("the command looks inside", "cli/a.c", OPEN + '#include "base/b.h"\n', [(2, "include")]),
    ("the command converts", "cli/a.c", OPEN + '#include "convert/convert.h"\n#include "bitnet.h"\n', []),
    ("the command does without extras", "cli/a.c", OPEN + '#include "bitnet_extras.h"\n', [(2, "include")]),
    ("extras look inside", "extras/a.c", OPEN + '#include "base/b.h"\n', [(2, "include")]),
    ("extras on the header of checks", "extras/a.c", OPEN + '#include "bitnet_check.h"\n', [(2, "include")]),
    ("extras on the header for kernels", "extras/a.c", OPEN + '#include "bitnet_kernel.h"\n', []),
    ("include of nothing", "src/text/a.c", OPEN + '#include "nowhere.h"\n', [(2, "include")]),
    ("library unknown to the layer", "src/model/a.c", OPEN + "#include <jansson.h>\n", [(2, "include")]),
    ("library known to the layer", "src/text/a.c", OPEN + "#include <pcre2.h>\n", []),
    ("long function", "tests/unit/a.c", LONG, [(3, "function-length")]),
    ("function of 60 lines", "src/base/a.c", LONG.replace("    a++;\n", "", 3), []),
    ("long initializer", "src/base/a.c", OPEN + "static const int t[] = {\n" + "    1,\n" * 80 + "};\n", []),
    ("long file", "src/base/a.c", OPEN + "\n" * 500, [(501, "file-length")]),
    ("long test file", "tests/unit/a.c", OPEN + "\n" * 500, []),
    ("wide line", "src/base/a.c", OPEN + "/* " + "x" * 95 + " */\n", [(2, "width")]),
    ("line of 100", "src/base/a.c", OPEN + "/* " + "x" * 94 + " */\n", []),
    ("tab", "src/base/a.c", OPEN + "int\tx(void);\n", [(2, "tab")]),
    ("space at the end", "src/base/a.c", OPEN + "int x(void); \n", [(2, "space")]),
    ("no newline at the end", "src/base/a.c", OPEN + "int x(void);", [(2, "end")]),
    ("a public header of 351 lines", "include/bitnet_a.h", OPEN + "\n" * 350, [(351, "file-length")]),
    ("the manual may be longer", "include/bitnet.h", OPEN + "\n" * 350, []),
    ("a room that has grown", "src/engine/a.inc", OPEN + "\n" * 4199, [(4201, "room-length")]),  # with e.h
    ("a room that is full", "src/engine/a.inc", OPEN + "\n" * 4198, []),
    ("a room without a bound", "src/check/a.inc", OPEN + "\n" * 9000, []),
    ("no opening comment", "src/base/a.c", "int x(void);\n", [(1, "opening")]),
    ("no opening comment in a script", "tools/x", "#!/bin/sh\nls\n", [(1, "opening")]),
    ("tuned to one machine", "CMakeLists.txt", "# b\nadd_compile_options(-march=native)\n", [(2, "flags")]),
    ("fast and wrong", "cmake/x.cmake", "# b\nset(F -ffast-math)\n", [(2, "flags")]),
    ("flag for one file", "CMakeLists.txt", "# b\nset(F -march=armv8.2-a+dotprod)\n", []),
    ("unfinished", "docs/a.md", "Later.\nTODO: more\n", [(2, "unfinished")]),
    ("a vendor in the host of all GPUs", "src/backend/gpu/a.c", OPEN + "/* CUDA */\n", [(2, "vendor")]),
    ("a vendor in its own folder", "src/backend/cuda/a.c", OPEN + "/* CUDA */\n", []),
    ("a planted break of a line that is gone", "tests/mutants/planted.txt", "# b\n\nsrc/base/b.h\n- gone\n+ x\n! test_a b\n",
     [(3, "mutants")]),
    ("an explained mutant of a file that is gone", "tests/mutants/explained.txt", "# b\n\nsrc/base/z.c f\n- gone\n+ x\nwhy\n",
     [(3, "mutants")]),
    ("path of a machine", "docs/a.md", "see /home/me/x\n", [(1, "machine-path")]),
]
HEADERS = ["src/base/b.h", "src/text/t.h", "src/engine/e.h", "src/check/c.h", "src/ops/ops.h", "src/ops/backend.h",
           "src/backend/cpu/p.h", "src/backend/gpu/g.h", "src/backend/cuda/u.h",
           "server/http/h.h", "server/openai/o.h", "server/ask/s.h", "src/convert/convert.h", "include/bitnet.h", "include/bitnet_kernel.h", "include/bitnet_tools.h",
           "include/bitnet_check.h", "extras/bitnet_extras.h"]


def write(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def load(path):
    loader = importlib.machinery.SourceFileLoader("lint", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def fails_a_row(rules, name, path, text, expected):
    with tempfile.TemporaryDirectory() as root:
        for header in HEADERS:
            write(root, header, OPEN)
        write(root, path, text)
        found = [row[:3] for row in rules.Lint(root).run()]
    want = [(os.path.dirname(path) if rule == "room-length" else path, line, rule) for line, rule in expected]
    if found != want:
        print(f"FAILED {name}: expected {want}, found {found}")
    return found != want


def fails_as_a_command(root, code, says):
    run = subprocess.run([os.path.join(ROOT, "tools", "lint"), "--root", root], capture_output=True, text=True, check=False)
    wrong = run.returncode != code or says not in run.stdout + run.stderr
    if wrong:
        print(f"FAILED tools/lint --root {root}: status {run.returncode}, no {says!r} in:\n{run.stdout}{run.stderr}")
    return wrong


def main():
    rules = load(os.path.join(ROOT, "tools", "lint"))
    failed = sum(fails_a_row(rules, *row) for row in ROWS)
    with tempfile.TemporaryDirectory() as root:
        write(root, "src/base/a.c", OPEN + "\tint f(void);\n")
        failed += fails_as_a_command(root, 1, "src/base/a.c:2: [tab] indent with spaces\n")
    failed += fails_as_a_command(ROOT, 0, "lint: clean\n")
    print(f"{len(ROWS) + 2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
