#!/bin/sh
# compute-sanitizer over the tests of the kernels: accesses outside of arrays, and races in shared memory.
#   tests/gpu/sanitize.sh [memcheck racecheck synccheck initcheck] [-- pytest arguments]
# Exit status 0 if the sanitizer reports nothing and the tests pass. PYTHON names the interpreter. PARTS=12 runs
# as many processes side by side, each its share of the tests: about four minutes a tool then, else most of an hour.
set -eu
cd "$(dirname "$0")/../.."
tools=""
while [ $# -gt 0 ] && [ "$1" != "--" ]; do
    tools="$tools $1"
    shift
done
[ $# -gt 0 ] && shift
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
parts=${PARTS:-1}
logs=runs/sanitizer
mkdir -p "$logs"
for tool in ${tools:-memcheck racecheck}; do
    echo "== $tool, logs in $logs"
    exclude=""
    # cuBLAS's kernels order their copies by barriers of the hardware, which racecheck takes for none.
    [ "$tool" != racecheck ] || exclude="--kernel-name-exclude kernel_substring=nvjet"
    part=0
    running=""
    while [ "$part" -lt "$parts" ]; do
        # AUTOQ_TEST_SANITIZER lets tests take small sizes: each launch is some hundred times slower.
        AUTOQ_TEST_SANITIZER=1 AUTOQ_TEST_PART="$part/$parts" "$sanitizer" --tool "$tool" --error-exitcode 9 $exclude \
            --print-limit 20 "${PYTHON:-.venv/bin/python}" -m pytest -p tests.gpu.unpooled -p no:xdist \
            -p no:cacheprovider -q -m "gpu and not exhaustive and not slow" --timeout 0 tests/gpu "$@" \
            >"$logs/$tool-$part.log" 2>&1 &
        running="$running $!"
        part=$((part + 1))
    done
    failed=0
    for process in $running; do
        wait "$process" || failed=1
    done
    part=0
    while [ "$part" -lt "$parts" ]; do
        tail -n 2 "$logs/$tool-$part.log"
        part=$((part + 1))
    done
    [ "$failed" -eq 0 ] || { echo "== $tool: see the logs"; exit 1; }
done
echo "== nothing reported"
