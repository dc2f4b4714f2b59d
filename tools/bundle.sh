#!/bin/sh
# tools/bundle.sh FOLDER - a folder that runs on an x86-64 machine without tool chain or libraries: the command, the test
# programs of the CPU backend, the models they need, the libraries they are linked with, and tools/x86_check.sh as run.sh.
# On x86-64 it is built natively, elsewhere with the preset cross-x86_64 (tools/setup test brings its sysroot). Without
# CUDA, which would be most of the bytes. Reference data comes from $BITNET_SHARED, else from ../shared.
set -eu
cd "$(dirname "$0")/.."
[ $# = 1 ] || {
    echo "usage: tools/bundle.sh FOLDER" >&2
    exit 2
}
tests='test_kernels test_kernels_r16 test_kernels_vector test_attention test_head test_head_copy test_head_kernels test_weights test_model test_self_test test_golden'
shared=${BITNET_SHARED:-$PWD/../shared}
mkdir -p build "$1"
to=$(cd "$1" && pwd)

if [ "$(uname -m)" = x86_64 ]; then
    preset=release build=build/bundle run='' sysroot=/ strip=strip readelf=readelf
else
    preset=cross-x86_64 build=build/bundle-x86_64 sysroot=$PWD/build/sysroot-x86_64
    run="qemu-x86_64-static -L $sysroot" strip=x86_64-linux-gnu-strip readelf=x86_64-linux-gnu-readelf
fi

# shellcheck disable=SC2086
{
    cmake --preset $preset -B $build -DBITNET_CUDA=OFF >build/bundle.log 2>&1 &&
        ninja -C $build bitnet_cli $tests >>build/bundle.log 2>&1
} || {
    tail -30 build/bundle.log >&2
    exit 1
}

rm -rf "$to/bin" "$to/lib" "$to/models" "$to/shared"
mkdir -p "$to/bin" "$to/lib" "$to/models" "$to/shared/story-model"
for f in bitnet $(for t in $tests; do echo "tests/$t"; done); do
    $strip -o "$to/bin/$(basename "$f")" "$build/$f"
done

# every library that is needed, and those that they need; and the loader that reads them
add_libraries() {
    for lib in $($readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        [ -e "$to/lib/$lib" ] && continue
        found=$(find "$sysroot/lib/x86_64-linux-gnu" "$sysroot/usr/lib/x86_64-linux-gnu" "$sysroot/lib64" \
            -name "$lib" 2>/dev/null | head -n 1)
        [ -n "$found" ] || {
            echo "bundle: $lib, which $1 needs, is not found below $sysroot" >&2
            exit 1
        }
        cp -L "$found" "$to/lib/$lib"
        chmod 755 "$to/lib/$lib"
        add_libraries "$to/lib/$lib"
    done
}
for f in "$to"/bin/*; do add_libraries "$f"; done

cp models/story.gguf "$to/models/"
for model in nano story; do
    if [ -d "$shared/story-model/$model" ]; then
        # shellcheck disable=SC2086
        $run $build/bitnet convert "$shared/story-model/$model" "$to/models/golden-$model.gguf" --embedding f16 \
            >>build/bundle.log
        mkdir -p "$to/shared/story-model/$model"
        cp -r "$shared/story-model/$model/golden" "$to/shared/story-model/$model/"
        chmod -R u+w "$to/shared"
    else
        echo "bundle: no reference data at $shared/story-model/$model: the golden test stays out" >&2
    fi
done
git rev-parse --short HEAD >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"
cp tools/x86_check.sh "$to/run.sh"
chmod 755 "$to/run.sh"
echo "bundle: $to, $(du -sm "$to" | cut -f1) MB; there: sh run.sh"
