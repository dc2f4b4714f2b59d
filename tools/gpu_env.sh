# tools/gpu_env.sh - env.sh of a folder made by tools/gpu_bundle.sh, to be read with `.`: BITNET is the start command of its
# bin/bitnet, BITNET_START what starts any program of its bin/, BITNET_MODELS and BITNET_SHARED its models and reference
# data. The driver's libraries are linked in its drv/, since the folder's own loader knows no system paths. A shell other
# than bash needs GPU_BUNDLE, the path of the folder, to be set before.
# shellcheck shell=sh disable=SC3013,SC3028,SC3054
GPU_BUNDLE=$(cd "${GPU_BUNDLE:-$(dirname "${BASH_SOURCE:?set GPU_BUNDLE to the folder of env.sh}")}" && pwd)
for f in "$GPU_BUNDLE"/bin/*.gz; do
    [ ! -e "$f" ] || [ "${f%.gz}" -nt "$f" ] || { gunzip -c "$f" >"${f%.gz}" && chmod +x "${f%.gz}"; }
done
mkdir -p "$GPU_BUNDLE/drv"
for f in /usr/local/cuda/lib64/libnvrtc*.so* $(ldconfig -p 2>/dev/null |
    sed -n 's/.*=> \(.*\/lib\(cuda\|nvidia-\|nvrtc\|nccl\)[^/]*\)$/\1/p'); do
    [ ! -e "$f" ] || ln -sf "$f" "$GPU_BUNDLE/drv/"
done
BITNET_START="$GPU_BUNDLE/lib/ld-linux-x86-64.so.2 --library-path $GPU_BUNDLE/lib:$GPU_BUNDLE/drv"
BITNET="$BITNET_START $GPU_BUNDLE/bin/bitnet"
BITNET_MODELS=$GPU_BUNDLE/models
export BITNET_SHARED="$GPU_BUNDLE/shared"
export GPU_BUNDLE BITNET BITNET_START BITNET_MODELS
