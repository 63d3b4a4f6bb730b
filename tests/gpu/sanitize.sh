#!/bin/sh
# compute-sanitizer over the tests of the kernels: accesses outside of arrays, and races in shared memory.
#   tests/gpu/sanitize.sh [memcheck racecheck synccheck initcheck] [-- pytest arguments]
# Exit status 0 if the sanitizer reports nothing and the tests pass. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")/../.."
tools=""
while [ $# -gt 0 ] && [ "$1" != "--" ]; do
    tools="$tools $1"
    shift
done
[ $# -gt 0 ] && shift
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
for tool in ${tools:-memcheck racecheck}; do
    echo "== $tool"
    # AUTOQ_TEST_SANITIZER lets tests take small sizes: each launch is some hundred times slower.
    AUTOQ_TEST_SANITIZER=1 "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
        "${PYTHON:-.venv/bin/python}" -m pytest -p tests.gpu.unpooled -p no:xdist -p no:cacheprovider \
        -q -x -m "gpu and not exhaustive" --timeout 0 tests/gpu "$@"
done
echo "== nothing reported"
