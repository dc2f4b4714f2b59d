#!/bin/sh
# build.sh DIR: compiles the kernels and kbench for compute capability 9.0a into DIR/kbench, as many files at once as there
# are processors. Run it in the root of the repository.
set -e
out=$1
mkdir -p "$out"
ls src/backend/cuda/kernels/*.cu tests/cuda/*.cu | grep -v /ref_ |
    xargs -P "$(nproc)" -I{} sh -c 'nvcc -std=c++17 -O3 -lineinfo -Isrc -gencode=arch=compute_90a,code=sm_90a -c {} \
        -o "$0/$(basename {} .cu).o" || { echo "{} does not compile"; exit 255; }' "$out"
cc -O2 -std=c11 -Isrc -c tests/cuda/pack.c -o "$out/pack_c.o"
nvcc -gencode=arch=compute_90a,code=sm_90a "$out"/*.o -o "$out/kbench"
