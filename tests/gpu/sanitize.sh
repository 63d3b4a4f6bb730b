#!/bin/sh
# compute-sanitizer over the tests of the kernels: accesses outside of arrays, and races in shared memory.
#   tests/gpu/sanitize.sh [memcheck racecheck synccheck initcheck] [-- pytest arguments]
# Exit status 0 if the sanitizer reports nothing and the tests pass. PYTHON names the interpreter, LOGS the folder
# for what the tools say. PARTS=12 runs as many processes side by side, each its share of the tests: about four
# minutes a tool then, else most of an hour.
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
logs=${LOGS:-runs/sanitizer}
mkdir -p "$logs"

# Races of our own in the logs that are named. cuBLAS's kernels order their copies by barriers of the hardware, which
# racecheck takes for none; left out by --kernel-name-exclude they fault. So what it says of them isn't counted.
races() {
    awk 'function done() { if (ours) printf "%s", text; text = ""; ours = 0 }
        /========= (Error|Warning): Race reported/ { done(); inside = 1 }
        !/=========  *[^ ]/ { done(); inside = 0 }
        inside { text = text FILENAME ": " $0 "\n"; if (/ access at / && !/nvjet/) ours = 1 }
        END { done() }' "$@"
}

for tool in ${tools:-memcheck racecheck}; do
    echo "== $tool, logs in $logs"
    rm -f "$logs/$tool"-*.log
    flags="--error-exitcode 9 --print-limit 20"
    [ "$tool" != racecheck ] || flags="--print-limit 10000"
    part=0
    running=""
    while [ "$part" -lt "$parts" ]; do
        # AUTOQ_TEST_SANITIZER lets tests take small sizes: each launch is some hundred times slower.
        AUTOQ_TEST_SANITIZER=1 AUTOQ_TEST_PART="$part/$parts" "$sanitizer" --tool "$tool" $flags \
            "${PYTHON:-.venv/bin/python}" -m pytest -p tests.gpu.unpooled -p no:xdist \
            -p no:cacheprovider -q -m "gpu and not exhaustive and not slow" --timeout 900 --timeout-method thread \
            tests/gpu "$@" >"$logs/$tool-$part.log" 2>&1 &
        running="$running $!"
        part=$((part + 1))
    done
    failed=0
    for process in $running; do
        wait "$process" || failed=1
    done
    for log in "$logs/$tool"-*.log; do
        tail -n 2 "$log"
        grep -q "SUMMARY: " "$log" || { echo "$log: the sanitizer came to no end"; failed=1; }
        ! grep "Internal Sanitizer Error" "$log" || failed=1
    done
    if [ "$tool" = racecheck ]; then
        ours=$(races "$logs/$tool"-*.log)
        [ -z "$ours" ] || { printf '%s\n' "$ours"; failed=1; }
        awk '/Race reported.*nvjet/ { n++ } END { print n + 0 " races of cuBLAS, not counted" }' "$logs/$tool"-*.log
    fi
    [ "$failed" -eq 0 ] || { echo "== $tool: see the logs"; exit 1; }
done
echo "== nothing reported"
