#!/bin/bash -eu
# Builds the fuzz targets in the image of the Dockerfile beside it (OSS-Fuzz sets SRC and OUT): one program under a name per target.
cd "$SRC/flyball"
cargo fuzz build -O --features libfuzzer any
for corpus in fuzz/corpus/*/; do
    name=$(basename "$corpus")
    cp fuzz/target/x86_64-unknown-linux-gnu/release/any "$OUT/$name"
    zip -qj "$OUT/${name}_seed_corpus.zip" "$corpus"*
done
