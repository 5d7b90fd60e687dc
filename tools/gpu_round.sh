#!/bin/bash
# One round on a GPU, in two halves, so that the machine with the GPU needs neither CMake nor a network.
#   tools/gpu_round.sh build        here: collects what the other machine needs in .gpu/ (some MiB)
#   tools/gpu_round.sh run [FOLDER] there, on this tree with .gpu/: checks, times and sanitizes; all results in FOLDER
#                                   (default $OUT, else gpu_out); rope-<device>.json belongs in bench/results/
#   OPS="rope" ... run              of these ops only (default: rope rms_norm add_rms_norm, which takes two rounds' time)
#   BRIM_PEERS=FOLDER ... run       times brim beside the libraries that are installed in FOLDER (pip install --target) too
# The GPU machine needs a driver, Python with torch 2.10 or newer and pytest, and compute-sanitizer for the last parts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build_half() {
  set -e
  make build CUDA_ARCH=90
  make python CUDA_ARCH=90
  rm -rf .gpu
  mkdir -p .gpu/bin .gpu/lib .gpu/python
  cp build/bin/brim .gpu/bin/
  # The OpenMP runtime travels along, for a machine that has no compiler.
  cp "$(ldd build/bin/brim | awk '/libgomp/ { print $3 }')" .gpu/lib/
  cp -r "$(.venv/bin/python -c 'import brim, os; print(os.path.dirname(brim.__file__))')" .gpu/python/
  find .gpu -name __pycache__ -prune -exec rm -rf {} +
  strip --strip-unneeded .gpu/bin/* .gpu/python/brim/*.so
  ls .gpu/python/brim/*cuda*.so >/dev/null || { echo "gpu_round: built without CUDA, there is nothing to run"; exit 1; }
  du -sh .gpu
}

# part <name> <seconds> <command>...: runs it under a limit, into <name>.log, and notes how it went. What is not timed may run
# beside others, in the background.
budget=${BUDGET:-525} # seconds for everything
part() {
  local name=$1 limit=$2 began=$SECONDS rc word
  shift 2
  local left=$((budget - SECONDS))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -lt 5 ]; then
    rc=124 word="no time left"
  else
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    rc=$?
    case $rc in
      0) word=ok ;;
      124 | 137) word="ran past $limit s" ;;
      *) word="failed ($rc)" ;;
    esac
  fi
  printf '%-24s %-16s %4d s  %s\n' "$name" "$word" $((SECONDS - began)) "$(tail -n 1 "$out/$name.log" 2>/dev/null | cut -c1-90)" | tee -a "$out/parts.txt"
  [ $rc = 0 ] || echo "$name" >>"$out/broken.txt"
}

# Beside the libraries in $BRIM_PEERS. CUTLASS's Python DSL lies deeper, where a .pth file would find it.
peers() {
  PYTHONPATH="$PYTHONPATH:$BRIM_PEERS:$BRIM_PEERS/nvidia_cutlass_dsl/dsl_packages" part "$@"
}

rope_parts() {
  part host 40 python3 tools/host_parts.py --json "$out/host.json"
  local bench=(python3 -m brim.bench rope)
  [ -z "${BRIM_PEERS:-}" ] || peers peers-rope 150 "${bench[@]}" --time 130 --json "$out/rope-peers-$device.json"
  # The shapes that models use, a token that is no multiple of 16 bytes, and slices of a packed projection.
  bench+=(--provider brim --clock graph --mode forward backward)
  local models=(--heads 32+8 128+128 --head-dim 56 64 80 92 96 128 192 256) sizes=(--tokens 2048 8192 32768)
  part grid 130 "${bench[@]}" "${models[@]}" "${sizes[@]}" --dtype bfloat16 float32 --time 100 --json "$out/rope-$device.json"
  part grid-float16 60 "${bench[@]}" "${models[@]}" "${sizes[@]}" --dtype float16 --time 50 --json "$out/rope-$device-float16.json"
  part grid-odd 40 "${bench[@]}" --heads 73+213 --head-dim 92 "${sizes[@]}" --dtype bfloat16 float16 float32 --time 30 --json "$out/rope-$device-odd.json"
  part grid-packed 90 "${bench[@]}" "${models[@]}" --tokens 2048 8192 --dtype bfloat16 float16 float32 --layout packed --time 80 --json "$out/rope-$device-packed.json"
  # By heads, in both forms.
  bench=("$brim" bench --backend cuda --model llama-3-8b --layout bhsd --tokens 2048 8192 --dtype bfloat16 float32)
  part bhsd 30 "${bench[@]}" --json "$out/rope-$device-bhsd.json"
  part bhsd-plain 30 "${bench[@]}" --path plain --json "$out/rope-$device-bhsd-plain.json"
}

# The shapes that models use: 8192 and 2048 tokens, q and k heads of as many; a long row; 4097 elements; an unaligned base; a
# float32 weight. The core's bench has all of them in its own list.
norm_parts() {
  local op=$1
  for dtype in bfloat16 float16 float32; do
    part "bench-$op-$dtype" 120 "$brim" bench --backend cuda --op "$op" --dtype $dtype --quick --json "$out/$op-$device-$dtype.json"
  done
  [ -z "${BRIM_PEERS:-}" ] || norm_peers "$op" "" 8192 4096 1024 8192
  [ -z "${BRIM_PEERS:-}" ] || norm_peers "$op" -chain 8192 4096 --layout chain
}
# norm_peers <op> <of the name> <rows> <hidden>... [option]...
norm_peers() {
  local op=$1 name=$2 rows=$3
  shift 3
  peers "peers-$op$name" 110 python3 -m brim.bench --op "$op" --rows "$rows" --hidden "$@" --quick --compile --time 70 --json "$out/$op-peers$name-$device.json"
}
rms_norm_parts() {
  norm_parts rms_norm
  [ -z "${BRIM_PEERS:-}" ] || norm_peers rms_norm -heads 262144 128
  [ -z "${BRIM_PEERS:-}" ] || norm_peers rms_norm -long 2048 65536
}
add_rms_norm_parts() { norm_parts add_rms_norm; }

run_half() {
  out=${1:-${OUT:-gpu_out}}
  mkdir -p "$out"
  rm -f "$out/parts.txt" "$out/broken.txt"
  ldconfig -p | grep -q libgomp.so.1 || export LD_LIBRARY_PATH=$PWD/.gpu/lib:${LD_LIBRARY_PATH:-}
  export PYTHONPATH=$PWD/.gpu/python PYTHONDONTWRITEBYTECODE=1
  brim=.gpu/bin/brim
  local device
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr '[:upper:] ' '[:lower:]-' | sed 's/^nvidia-//')
  [ -n "$device" ] || { echo "gpu_round: no GPU here"; exit 1; }

  # check compares with the reference and, for the bits of RoPE, with a float32 fused multiply-add: the CPU's bits.
  part info 30 $brim info
  local op ops names=""
  read -ra ops <<<"${OPS:-rope rms_norm add_rms_norm}"
  for op in "${ops[@]}"; do
    part "check-$op" 60 $brim check --backend cuda --op "$op" --json "$out/check-cuda-$op.json"
    "${op}_parts"
    names+="${names:+ or }$op"
  done
  # What is not timed, all at once. The tests on CPU tensors run in CI.
  part pytest 150 python3 -m pytest tests/python -k "cuda and ($names)" -q -rs --tb=short -p no:cacheprovider &
  command -v compute-sanitizer >/dev/null || echo "compute-sanitizer is not here" | tee -a "$out/broken.txt"
  local mode
  for op in "${ops[@]}"; do
    mode=()
    [ "$op" != rope ] || mode=(--mode forward) # its directions share their kernels
    if command -v compute-sanitizer >/dev/null; then
      part "memcheck-$op" 150 compute-sanitizer --tool memcheck --error-exitcode 9 $brim check --backend cuda --op "$op" &
      for tool in racecheck initcheck synccheck; do
        part "$tool-$op" 150 compute-sanitizer --tool $tool --error-exitcode 9 $brim check --backend cuda --op "$op" "${mode[@]}" &
      done
    fi
    part "check-cpu-$op" 150 $brim check --backend cpu --op "$op" --json "$out/check-cpu-$op.json" &
  done
  wait
  for op in "${ops[@]}"; do
    part "check-large-$op" 150 $brim check --backend cuda --op "$op" --large --json "$out/check-large-$op.json"
  done

  local name
  [ ! -e "$out/broken.txt" ] || while read -r name; do
    echo
    echo "==== the end of $name.log"
    tail -n 15 "$out/$name.log" 2>/dev/null | cut -c1-200
  done <"$out/broken.txt"
  echo
  echo "==== $device, $SECONDS s"
  cat "$out/parts.txt"
  [ ! -e "$out/broken.txt" ]
}

case "${1:-}" in
  build) build_half ;;
  run) run_half "${2:-}" ;;
  *)
    sed -n '2,9s/^# //p' "$0"
    exit 2
    ;;
esac
