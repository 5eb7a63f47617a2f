#!/usr/bin/env bash
# Plants each fault in a copy of the tree, builds the worlds, and prints after how many seeds and seconds they
# find it, as lines of the table in docs/faults.md.
#   tests/worlds/faults/run.sh <empty or earlier folder for the copy> [fault ...]
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
copy=${1:?usage: run.sh <folder for the copy> [fault ...]}
shift
[ $# -gt 0 ] || set -- $(cd "$source/tests/worlds/faults" && ls ./*.patch | sed 's|./||; s|\.patch$||')
readonly most_seconds=${MOST_SECONDS:-60}

mkdir -p "$copy"
git -C "$source" archive HEAD | tar -x -C "$copy"
export CCACHE_NOHASHDIR=1
[ -f "$copy/build/build.ninja" ] || meson setup "$copy/build" "$copy" -Dauto_features=enabled -Dpython= >/dev/null
missed=0
for fault in "$@"; do
  file=$source/tests/worlds/faults/$fault.patch
  transport=$(sed -n 's/^Transport: //p' "$file")
  patch -s -d "$copy" -p1 <"$file"
  if ninja -C "$copy/build" tests/worlds/worlds >"$copy/build.log" 2>&1; then
    # An assertion that fails also finds a fault; it ends the program without a report.
    begin=$(date +%s.%N)
    timeout $((2 * most_seconds)) "$copy/build/tests/worlds/worlds" --transport "$transport" --seconds "$most_seconds" \
      --keep-size >"$copy/$fault.log" 2>&1 && found= || found=$?
    seconds=$(date +%s.%N | awk -v begin="$begin" '{ printf "%.1f", $1 - begin }')
    how=$(sed -n 's/^seed .* fails after \([0-9]*\) seeds.*/\1/p' "$copy/$fault.log")
    if [ -z "$found" ]; then
      how="not found"
      missed=$((missed + 1))
    fi
    echo "| $fault | $transport | ${how:-ends the program} | $seconds |"
  else
    echo "| $fault | does not build, see $copy/build.log | | |"
    missed=$((missed + 1))
  fi
  patch -s -R -d "$copy" -p1 <"$file"
done
exit $((missed > 0))
