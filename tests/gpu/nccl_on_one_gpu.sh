#!/usr/bin/env bash
# The check of the NCCL plugin on a machine with one GPU, in about three minutes. Needs PyTorch with CUDA in $PYTHON
# (default python3). For the diagnoses it needs this project too (`mycroft` on the PATH, or in $MYCROFT).
#
#   tests/gpu/nccl_on_one_gpu.sh [FOLDER]      results, traces and logs land in FOLDER (default: a new one in /tmp)
#
# Several ranks share the device: a distinct NCCL_HOSTID per process makes NCCL take them for different hosts, so that the
# network transport (sockets on lo) is used and its proxy is at work, which is what the plugin looks at.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$(mktemp -d /tmp/mycroft-gpu.XXXXXX)}
python=${PYTHON:-python3}
mycroft=${MYCROFT:-mycroft}
ranks=${RANKS:-2}
rounds=${ROUNDS:-3}
mkdir -p "$out"

say() { printf '%s\n' "$*" >&2; }

plugin=${PLUGIN:-$($mycroft plugin-path 2>/dev/null)}
if [ -z "$plugin" ]; then
  # Without the installed project: build the plugin alone; needs cmake and a C++20 compiler.
  cmake -S "$here/../.." -B "$out/build" -DCMAKE_BUILD_TYPE=Release >"$out/build.log" 2>&1 &&
    cmake --build "$out/build" --target mycroft_plugin --parallel >>"$out/build.log" 2>&1 ||
    { say "no plugin: set PLUGIN, or see $out/build.log"; exit 2; }
  plugin=$out/build/tracer/cpp/libnccl-profiler-mycroft.so
fi
$python -c 'import torch; assert torch.cuda.is_available(), "no CUDA device"; import torch.distributed as d; assert d.is_nccl_available()' ||
  { say "PyTorch with CUDA and NCCL is needed in $python"; exit 2; }
diagnoses=yes
$mycroft --version >/dev/null 2>&1 || { diagnoses=no; say "no mycroft command: traces are kept in $out for diagnosis elsewhere"; }

port=29600
pids=()
# start NAME PLUGIN|none WHAT [ARGUMENT ...]: one process a rank; logs and traces under $out/NAME.
start() {
  local name=$1 with=$2; shift 2
  port=$((port + 1)); pids=()
  mkdir -p "$out/$name/traces"
  for ((r = 0; r < ranks; r++)); do
    env RANK=$r WORLD_SIZE=$ranks LOCAL_RANK=$r LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      NCCL_HOSTID="mycroft-$name-$r" NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 \
      NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_CTAS=2 NCCL_MAX_NCHANNELS=2 \
      NCCL_DEBUG=WARN TORCH_NCCL_ASYNC_ERROR_HANDLING=0 NCCL_PROFILER_PLUGIN="$with" MYCROFT_DIR="$out/$name/traces" \
      MYCROFT_BUDGET_MB=256 "$python" "$here/nccl_worker.py" "$@" >"$out/$name/rank$r.out" 2>"$out/$name/rank$r.err" &
    pids+=($!)
  done
}
# Waits at most so many seconds for a line in the output of rank 0.
await() {
  local name=$1 line=$2 seconds=$3
  for ((i = 0; i < seconds * 5; i++)); do
    grep -q "$line" "$out/$name/rank0.out" 2>/dev/null && return 0
    kill -0 "${pids[0]}" 2>/dev/null || return 1
    sleep 0.2
  done
  return 1
}
finish() {
  for pid in "${pids[@]}"; do kill -CONT "$pid" 2>/dev/null; kill -KILL "$pid" 2>/dev/null; done
  wait "${pids[@]}" 2>/dev/null
}
trap finish EXIT

# --- overhead: off and on in turn ---
for ((i = 1; i <= rounds; i++)); do
  for mode in off on; do
    with=$plugin; [ $mode = off ] && with=none
    say "round $i of $rounds, plugin $mode"
    start "$mode-$i" "$with" measure
    for pid in "${pids[@]}"; do wait "$pid" || say "  a rank failed: see $out/$mode-$i"; done
  done
done

# --- one rank stopped ---
verdict() {
  [ $diagnoses = yes ] || { printf 'traces kept in %s\n' "$out/$1/traces"; return; }
  $mycroft diagnose "$out/$1/traces" --json >"$out/$1/verdict.json" 2>"$out/$1/diagnose.err"
  "$python" - "$out/$1/verdict.json" <<'PY'
import json, sys
try:
    v = json.load(open(sys.argv[1]))
except (OSError, ValueError) as error:
    print(f"no verdict: {error}")
else:
    f = v["findings"][0] if v["findings"] else None
    print(v["summary"] if f is None else f"{f['category']}, rank {f['root_cause']['ranks']}, {f['confidence']}: {v['summary']}")
PY
}
victim=$((ranks - 1))
say "one rank stopped"
start stopped "$plugin" run
stopped="the job did not start: see $out/stopped"
if await stopped 'step 200' 60; then
  kill -STOP "${pids[$victim]}"
  sleep 20
  stopped=$(verdict stopped)
fi
finish

# --- one rank late to every step ---
say "one rank late by 50 ms a step"
start late "$plugin" run --late-rank "$victim" --late-ms 50
late="the job did not start: see $out/late"
if await late 'step 200' 60; then
  late=$(verdict late)
fi
finish

# --- the table ---
"$python" - "$out" "$rounds" "$ranks" "$victim" "$stopped" "$late" <<'PY' | tee "$out/table.md"
import json, pathlib, statistics, sys
out, rounds, ranks, victim, stopped, late = sys.argv[1:7]
found = {"off": [], "on": []}
for mode, runs in found.items():
    for i in range(1, int(rounds) + 1):
        path = pathlib.Path(out, f"{mode}-{i}", "rank0.out")
        lines = [l for l in path.read_text().splitlines() if l.startswith("{")] if path.exists() else []
        runs += [json.loads(l) for l in lines[-1:]]
import torch
print(f"{ranks} ranks on one {torch.cuda.get_device_name(0)}, torch {torch.__version__}, NCCL", *{r["nccl"] for r in found["on"]} or {"?"})
print("\n| operation, 8 MB | off: ms | off: busbw GB/s | on: ms | on: busbw GB/s | overhead |\n|---|---|---|---|---|---|")
names = [n for r in found["on"][:1] for n in r["ops"]]
for n in names:
    med = {m: {k: statistics.median(r["ops"][n][k] for r in runs) for k in ("ms", "busbw_gbs")} for m, runs in found.items() if runs}
    if len(med) < 2:
        continue
    over = 100 * (med["on"]["ms"] / med["off"]["ms"] - 1)
    print(f"| {n} | {med['off']['ms']:.3f} | {med['off']['busbw_gbs']:.3f} | {med['on']['ms']:.3f} | {med['on']['busbw_gbs']:.3f} | {over:+.2f} % |")
rings = list(pathlib.Path(out).glob("on-*/traces/*.ring"))
print(f"\n| check | result |\n|---|---|\n| trace files of the runs with the plugin | {len(rings)} |")
print(f"| rank {victim} stopped by SIGSTOP, expected to be named | {stopped} |")
print(f"| rank {victim} 50 ms late to each step, expected to be named | {late} |")
PY
say "everything is in $out"
