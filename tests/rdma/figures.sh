#!/usr/bin/env bash
# Compares with perftest what two ranks do over soft-RoCE, in the machine of vm.py:
#
#   tests/rdma/vm.py -- tests/rdma/figures.sh [times]
#
# It needs Debian's package perftest, and build/tools/tutti-perf. Each figure is measured several times in
# turn, since the machine's processors are shared: the best of each is what it can do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
times=${1:-3}

# The last line of a test of perftest between two processes: its columns.
perftest() {
  "$@" >/dev/null 2>&1 &
  local server=$!
  sleep 1
  timeout 60 "$@" 10.99.0.1 2>/dev/null | grep -E '^ *[0-9]+ +[0-9]+ ' | tail -n 1
  wait "$server" || true
}

# The times of the only size, out of place and in place, in microseconds.
tutti() {
  TUTTI_TRANSPORTS=rdma timeout 100 build/tools/tutti-perf "$@" --ranks 2 2>/dev/null | awk '/^ +[0-9]/ { print "  us:", $6, $10 }'
}

for ((i = 0; i < times; ++i)); do
  echo "ib_write_bw, 64 KiB: $(perftest ib_write_bw -d rxe0 -x 1 -s 65536 -n 500 -F | awk '{ print $4 " MB/s" }')"
  echo "ib_send_bw, 64 KiB: $(perftest ib_send_bw -d rxe0 -x 1 -s 65536 -n 500 -F | awk '{ print $4 " MB/s" }')"
  echo "broadcast, 64 KiB, 8 calls at once: $(tutti broadcast -b 64K -e 64K -n 50 -m 8)"
  echo "ib_read_bw, 64 KiB: $(perftest ib_read_bw -d rxe0 -x 1 -s 65536 -n 500 -F | awk '{ print $4 " MB/s" }')"
  for buffers in 0 2; do
    echo "broadcast, 8 MiB, -R $buffers: $(tutti broadcast -b 8M -e 8M -n 3 -R $buffers)"
    echo "all_reduce, 8 MiB, -R $buffers: $(tutti all_reduce -b 8M -e 8M -n 3 -R $buffers)"
    echo "sendrecv, 4 MiB, -R $buffers: $(tutti sendrecv -b 4M -e 4M -n 3 -R $buffers)"
  done
  echo "ib_write_lat, 8 B: $(perftest ib_write_lat -d rxe0 -x 1 -s 8 -n 1000 -F | awk '{ print "least " $3 ", typical " $5 ", mean " $6 " us" }')"
  echo "ib_send_lat, 8 B: $(perftest ib_send_lat -d rxe0 -x 1 -s 8 -n 1000 -F | awk '{ print "least " $3 ", typical " $5 ", mean " $6 " us" }')"
  echo "all_reduce, 8 B: $(tutti all_reduce -b 8 -e 8 -n 500)"
done
