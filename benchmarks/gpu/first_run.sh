#!/usr/bin/env bash
# Ten minutes on a GPU: facts, a probe by torch alone, self-test, suite, profiles, ceilings (docs/gpu.md).
#
#     bash benchmarks/gpu/first_run.sh [OUT]
#
# Each stage has a limit, and leaves a file in OUT as soon as it is done. Run again, it skips what is done and goes on with the
# suite. TOTAL_S: seconds for all (560). PYTHON: which (python3).
set -u
out=$(realpath -m "${1:-${OUT:-out}}")
cd "$(dirname "$0")/../.." || exit 3
keep=results/runs/first_run total=${TOTAL_S:-560} python=${PYTHON:-python3}
mkdir -p "$out" "$keep" || exit 3

left() { echo $((total - SECONDS > 20 ? total - SECONDS : 20)); }

stage() {  # FILE SECONDS COMMAND…: what it prints becomes OUT/FILE once it has ended, whatever it found
    local file=$1 limit=$2
    echo "== $file ($SECONDS s)" | tee -a "$out/log.txt"
    if [ ! -s "$keep/$file" ]; then
        timeout -k 5 "$limit" "${@:3}" > "$keep/part" 2>> "$out/log.txt"
        [ $? -lt 124 ] && [ -s "$keep/part" ] && mv "$keep/part" "$keep/$file"
    fi
    [ -s "$keep/$file" ] && cp "$keep/$file" "$out/part" && mv "$out/part" "$out/$file" || echo "$file: not done, see log.txt"
}

pack() {  # NAME: the run without its pictures and pages, which runners.report draws again
    tar czf "$keep/part.$BASHPID" -C "$keep" --exclude='*.png' --exclude='*.svg' --exclude='*.html' "$1" 2> /dev/null
    mv "$keep/part.$BASHPID" "$out/$1.tar.gz"
}

sweep() {  # NAME SECONDS OPTIONS…: a run, packed as OUT/NAME.tar.gz each minute and at its end
    local run=$keep/$1 begun=()
    echo "== $1 ($SECONDS s)" | tee -a "$out/log.txt"
    if [ -s "$run/manifest.json" ]; then begun=(--resume "$run"); else rm -rf "$run"; begun=(--out "$run" "${@:3}"); fi
    while sleep 60; do pack "$1"; done > /dev/null 2>&1 &
    timeout -k 10 "$2" "$python" -m runners.sweep "${begun[@]}" --time-budget $(($2 - 30)) >> "$out/log.txt" 2>&1
    kill $! && wait $! 2> /dev/null
    pack "$1"
}

[ -e .git ] || [ -n "${FLOPLEDGER_COMMIT:-}" ] ||
    echo "nobody knows which commit this is: set FLOPLEDGER_COMMIT"
stage facts.json 60 "$python" -m runners.doctor --format json
stage probe.json 45 "$python" benchmarks/gpu/probe.py
rm -f "$out/self_test.json"
stage self_test.json 110 "$python" -m runners.doctor --self-test --device cuda --budget 90 --format json --save "$out/self_test.json"
sweep suite $(($(left) - 110 > 60 ? $(left) - 110 : 60)) --device cuda --suite gpu
sweep profiles 65 --device cuda --models resnet50,mobilenet_v2,efficientnet_b0 --batch-sizes 256 --precisions amp-bf16 \
    --layout channels_last --size num_classes=10 --methods batch,exact --profile kineto --quick
stage ceilings.json "$(left)" "$python" -m runners.ceiling --device cuda --budget 25 --format json
echo "== done ($SECONDS s): $(ls "$out" | tr '\n' ' ')" | tee -a "$out/log.txt"
