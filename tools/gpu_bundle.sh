#!/bin/sh
# tools/gpu_bundle.sh FOLDER - a folder for an x86-64 machine with an NVIDIA GPU and no tool chain: the command with the CUDA
# backend, the golden test, models and reference data, libraries, tools/gpu_check.sh as run.sh, and env.sh, which sets BITNET
# to what starts the command there (tools/gpu_env.sh). Built natively on x86-64, elsewhere with the cross tool chain
# (tools/setup test brings its sysroot). BITNET_SHARED: the reference data.
set -eu
cd "$(dirname "$0")/.."
[ $# = 1 ] || {
    echo "usage: tools/gpu_bundle.sh FOLDER" >&2
    exit 2
}
shared=${BITNET_SHARED:-$PWD/../shared}
mkdir -p "$1"
to=$(cd "$1" && pwd)
if [ "$(uname -m)" = x86_64 ]; then
    preset=release build=build/gpu-bundle run='' sysroot='' strip=strip
else
    preset=cross-x86_64 build=build/gpu-bundle sysroot=$PWD/build/sysroot-x86_64
    run="qemu-x86_64-static -L $sysroot" strip=x86_64-linux-gnu-strip
fi
build=${GPU_BUNDLE_BUILD:-$build}
[ -e "$build/build.ninja" ] || cmake --preset $preset -B "$build" -DBITNET_CUDA=ON >build/gpu-bundle.log 2>&1
ninja -C "$build" bitnet_cli test_golden test_user test_exchange test_leaks test_device_stats test_timelines test_guide_gpu >>build/gpu-bundle.log 2>&1 || {
    tail -n 30 build/gpu-bundle.log >&2
    exit 1
}
rm -rf "${to:?}/bin" "${to:?}/lib" "${to:?}/models" "${to:?}/shared"
mkdir -p "$to/bin" "$to/lib" "$to/models" "$to/shared/story-model"
$strip -o "$to/bin/bitnet" "$build/bitnet"
for program in test_golden test_user test_exchange test_leaks test_device_stats test_timelines test_guide_gpu; do
    $strip -o "$to/bin/$program" "$build/tests/$program"
    gzip -9 "$to/bin/$program" # each has all kernels in it; env.sh unpacks them
done
# NVRTC and NCCL want the last two
for l in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libpcre2-8.so.0 libjansson.so.4 \
    libmicrohttpd.so.12 libgnutls.so.30 libp11-kit.so.0 libidn2.so.0 libunistring.so.2 libtasn1.so.6 libnettle.so.8 \
    libhogweed.so.6 libgmp.so.10 libffi.so.8 libcrypto.so.3 libedit.so.2 libtinfo.so.6 libbsd.so.0 libmd.so.0 libcmocka.so.0 libstdc++.so.6 libgcc_s.so.1; do
    found=$(find -L "$sysroot/lib" "$sysroot/lib64" "$sysroot/usr/lib" /usr/x86_64-linux-gnu/lib -name "$l" 2>/dev/null | head -n 1)
    [ -z "$found" ] || cp -L "$found" "$to/lib/"
done
convert() { # model input options...
    model=$1 input=$2
    shift 2
    # shellcheck disable=SC2086
    [ ! -e "$shared/$input" ] || $run "$build/bitnet" convert "$shared/$input" "$to/models/$model.gguf" "$@" >>build/gpu-bundle.log
}
for model in nano nano-master story; do
    convert $model story-model/$model --embedding f16
    mkdir -p "$to/shared/story-model/$model"
    cp -r "$shared/story-model/$model/golden" "$to/shared/story-model/$model/"
done
convert llama2c third-party/stories260K.bin --type f32 --embedding f32 --tokenizer "$shared/third-party/tok512.bin"
cp -r "$shared/third-party" "$to/shared/"
chmod -R u+w "$to"
cp tools/gpu_check.sh "$to/run.sh"
cp tools/gpu_env.sh "$to/env.sh"
git rev-parse --short HEAD >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"
echo "bundle: $to, $(du -sm "$to" | cut -f1) MB; there: sh run.sh"
