#!/bin/sh
# make_models.sh [EMBEDDING] - makes the models that ship in models/ from their checkpoints, which lie outside the
# repository ($BITNET_SHARED, else ../shared beside the checkout). Only maintainers need it.
# EMBEDDING: type of the story model's embedding (default q6_k). Also fills build/models/ with F16 and F32 forms to compare.
set -eu
cd "$(dirname "$0")/.."
shared=${BITNET_SHARED:-../shared}
story=$shared/story-model
embedding=${1:-q6_k}

convert=${BITNET:-}
for candidate in build/release/bitnet build/bitnet build/*/bitnet; do
    [ -z "$convert" ] && [ -x "$candidate" ] && convert=$candidate
done
if [ -z "$convert" ]; then
    echo "make_models.sh: no bitnet command found; build it first (make), or set BITNET" >&2
    exit 1
fi
if [ ! -d "$story" ]; then
    echo "make_models.sh: no checkpoints at $story (set BITNET_SHARED)" >&2
    exit 1
fi

mkdir -p models build/models
"$convert" convert "$story/story" models/story.gguf --embedding "$embedding"
"$convert" convert "$story/nano" models/nano.gguf --embedding f16
"$convert" convert "$story/story" build/models/story-f16.gguf --embedding f16
"$convert" convert "$story/nano" build/models/nano-f16.gguf --embedding f16
"$convert" convert "$story/nano-master" build/models/nano-master-f16.gguf --embedding f16
"$convert" convert "$shared/third-party/stories260K.bin" build/models/stories260K.gguf --type f32 --embedding f32 \
    --tokenizer "$shared/third-party/tok512.bin"
ls -l models/*.gguf build/models/*.gguf
